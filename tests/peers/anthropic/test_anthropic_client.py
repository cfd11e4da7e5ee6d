"""A policy that is served to Anthropic's own client: text, tools, streams and refusals."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import pytest
import pytest_asyncio
from starlette.applications import Starlette

from hindcast.actors.agents.model_call import ModelCall, Reply
from hindcast.actors.agents.proxy import ChatRoutes
from hindcast.actors.web_server import serve_app

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]

CLICK = {"name": "click", "description": "Click.", "input_schema": {"type": "object"}}
CALL = '<tool_call>{"name": "click", "arguments": {"id": 7}}</tool_call>'


class Scripted:
    """Answers with the next of the given texts, and keeps the chats that it was asked."""

    def __init__(self) -> None:
        self.answers: list[str] = []
        self.chats: list[tuple[list[dict[str, Any]], list[dict[str, Any]]]] = []

    async def ask(
        self,
        messages: list[dict[str, Any]],
        *,
        tools: list[dict[str, Any]],
        max_tokens: int | None,
        temperature: float | None,
    ) -> tuple[ModelCall, Reply]:
        """See `CallTarget`."""
        self.chats.append((messages, tools))
        call = ModelCall(messages, prompt_ids=[1, 2, 3], max_tokens=max_tokens or 64, uses_tools=bool(tools))
        finish = "length" if max_tokens == 1 else "stop"
        return call, Reply(
            text=self.answers.pop(0), finish=finish, prompt_tokens=3, answer_tokens=2, version=4
        )


@pytest.fixture
def policy() -> Scripted:
    return Scripted()


@pytest_asyncio.fixture
async def client(policy: Scripted) -> AsyncIterator[Any]:
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    app = Starlette(routes=ChatRoutes(lambda request: policy).under("/v1"))
    serving = asyncio.create_task(
        serve_app(app, server_name="the test's server", host="127.0.0.1", port=0, ready=address.set_result)
    )
    base = await asyncio.wait_for(address, 30)
    async with anthropic.AsyncAnthropic(base_url=base, api_key="any", max_retries=0) as made:
        yield made
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


async def test_a_conversation_with_a_tool_reaches_the_policy_as_a_chat(client: Any, policy: Scripted) -> None:
    policy.answers = [f"I click. {CALL}", "Done."]
    asked: list[Any] = [{"role": "user", "content": "Click the button."}]
    shared = {"model": "policy", "max_tokens": 64, "system": [{"type": "text", "text": "Be brief."}]}
    first = await client.messages.create(messages=asked, tools=[CLICK], **shared)
    assert (first.model, first.stop_reason) == ("policy-4", "tool_use")
    said, call = first.content
    assert (said.text, call.name, call.input) == ("I click.", "click", {"id": 7})
    assert (first.usage.input_tokens, first.usage.output_tokens) == (3, 2)
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "clicked"}]}
    asked += [
        {"role": "assistant", "content": [one.model_dump(exclude_none=True) for one in first.content]},
        {"role": "user", "content": [result, {"type": "text", "text": "Go on."}]},
    ]
    last = await client.messages.create(messages=asked, tools=[CLICK], tool_choice={"type": "none"}, **shared)
    assert (last.content[0].text, last.stop_reason) == ("Done.", "end_turn")
    chat, tools = policy.chats[1]
    assert [one["role"] for one in chat] == ["system", "user", "assistant", "tool", "user"]
    assert [one["content"] for one in chat] == [
        "Be brief.",
        "Click the button.",
        "I click.",
        "clicked",
        "Go on.",
    ]
    (called,) = chat[2]["tool_calls"]
    assert json.loads(called["function"]["arguments"]) == {"id": 7}
    assert chat[3]["tool_call_id"] == called["id"] == call.id
    assert tools == [], "the agent asked for an answer without tools"
    described = {"name": "click", "description": "Click.", "parameters": {"type": "object"}}
    assert policy.chats[0][1] == [{"type": "function", "function": described}]


async def test_a_stream_is_the_same_message(client: Any, policy: Scripted) -> None:
    policy.answers = [f"I click. {CALL}", "cut"]
    shared = {"model": "policy", "messages": [{"role": "user", "content": "Click."}]}
    async with client.messages.stream(tools=[CLICK], max_tokens=64, **shared) as stream:
        said = "".join([text async for text in stream.text_stream])
        whole = await stream.get_final_message()
    assert said == "I click."
    assert whole.content[1].input == {"id": 7}
    assert (whole.stop_reason, whole.usage.input_tokens, whole.usage.output_tokens) == ("tool_use", 3, 2)
    async with client.messages.stream(max_tokens=1, **shared) as stream:
        assert (await stream.get_final_message()).stop_reason == "max_tokens"


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"stop_sequences": ["END"]}, "stop_sequences is"),
        ({"tools": [CLICK], "tool_choice": {"type": "any"}}, "tool_choice is 'any'"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "expected a name and an input_schema"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
            "reads text alone",
        ),
    ],
)
async def test_what_the_policy_does_not_heed_is_refused_in_words(
    client: Any, policy: Scripted, more: dict[str, Any], why: str
) -> None:
    asked = {"model": "policy", "max_tokens": 64, "messages": [{"role": "user", "content": "x"}]}
    with pytest.raises(anthropic.BadRequestError, match=why) as refused:
        await client.messages.create(**asked | more)
    assert refused.value.body["error"]["type"] == "invalid_request_error"
    assert not policy.chats
