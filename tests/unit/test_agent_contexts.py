"""Which calls of an agent continue which chat."""

from typing import Any

import pytest

from hindcast.actors.agents.contexts import Contexts, turns_of
from hindcast.core.prompts.chat_messages import ChatUnreadable

SYSTEM = {"role": "system", "content": "Be brief."}
FIRST = {"role": "user", "content": "one"}
ANSWER = {"role": "assistant", "content": "1"}


def call(name: str, arguments: str, **more: str) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"type": "function", "function": {"name": name, "arguments": arguments}} | more],
    }


class Chat:
    """Contexts that get messages in place of turns."""

    def __init__(self) -> None:
        self._contexts = Contexts()

    def ask(self, *messages: dict[str, Any], answer: dict[str, Any] = ANSWER) -> int:
        (answered,) = turns_of([answer])
        return self._contexts.add(turns_of(messages), answered)


def test_calls_that_extend_the_chat_share_a_context_and_a_rewritten_one_begins_another() -> None:
    chat = Chat()
    second, rewritten = {"role": "user", "content": "two"}, {"role": "user", "content": "So far: 1. Now two"}
    assert chat.ask(SYSTEM, FIRST) == 0
    assert chat.ask(SYSTEM, FIRST, ANSWER, second) == 0
    assert chat.ask(SYSTEM, rewritten) == 1
    assert chat.ask(SYSTEM, FIRST, ANSWER, second, ANSWER, FIRST) == 0, "the first context may go on later"
    assert chat.ask(SYSTEM, FIRST, ANSWER, FIRST) == 2, "it leaves out what came after the first answer"
    assert chat.ask(SYSTEM, rewritten, ANSWER, FIRST) == 1
    assert chat.ask(SYSTEM, rewritten) == 3, "the same question again continues no answer"


def test_an_answer_that_the_agent_changed_is_another_chat() -> None:
    chat = Chat()
    assert chat.ask(FIRST) == 0
    assert chat.ask(FIRST, {"role": "assistant", "content": "One."}, FIRST) == 1


def test_what_clients_add_to_a_message_and_how_they_write_arguments_does_not_count() -> None:
    chat = Chat()
    assert chat.ask(FIRST, answer=call("stock", '{"item":"lamp","n":1}', id="call00000")) == 0
    sent_back = call("stock", '{"n": 1, "item": "lamp"}') | {"refusal": None, "content": ""}
    assert chat.ask({**FIRST, "content": [{"type": "text", "text": "one"}]}, sent_back, FIRST) == 0
    assert chat.ask(FIRST, call("stock", '{"item": "vase"}'), FIRST) == 1, "another call is another chat"


def test_arguments_that_are_no_json_count_as_they_are() -> None:
    assert turns_of([call("stock", "lamp")])[0].calls == (("stock", "lamp"),)


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(ChatUnreadable):
        turns_of([{"role": "user", "content": [{"type": "image_url"}]}])
