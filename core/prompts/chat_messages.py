"""Token ids of a chat in the OpenAI format, by the model's own chat template.

Contents are data, as in `core.prompts.chat_frame`: the template is rendered around marks and cut at them, so that no content
becomes a token that opens or closes a turn. Names and arguments of tool calls, and descriptions of tools, pass through the
template as they are.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from hindcast.core.errors import HindcastError
from hindcast.core.prompts.chat_frame import encode_frame, encode_text

_MARK = "hindcast-content-{}-mark"
_MARKS = re.compile(r"hindcast-content-(\d+)-mark")
_TODAY = datetime(2024, 7, 26)
"""Date for templates that show one: prompts must not depend on the current day."""


class ChatUnreadable(HindcastError):
    """Messages that cannot become a prompt of this model."""


def text_of(content: Any) -> str:
    """The text of a message's content: a text, or a list of parts. Raises ChatUnreadable for parts that are not text."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise ChatUnreadable(
            f"a message's content is a {type(content).__name__}: expected a text or a list of parts"
        )
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else type(part).__name__
        if kind not in ("text", "input_text", "output_text"):
            raise ChatUnreadable(f"a message has a part of type {kind!r}: this policy reads text alone")
        texts.append(str(part.get("text", "")))
    return "\n".join(texts)


def encode_chat(
    tokenizer: Any, messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Mapping[str, Any]] = ()
) -> list[int]:
    """Encode messages up to the start of the assistant's answer.

    Raises:
        ChatUnreadable: the template refuses them, or they hold something else than text.
    """
    if not messages:
        raise ChatUnreadable("a chat needs at least one message")
    contents: list[str] = []
    turns: list[dict[str, Any]] = []
    for message in messages:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise ChatUnreadable("every message needs a role and a content")
        text = text_of(message.get("content"))
        turn: dict[str, Any] = {**message, "content": _MARK.format(len(contents)) if text else ""}
        if message.get("tool_calls"):
            turn["tool_calls"] = [_with_arguments(call) for call in message["tool_calls"]]
        contents.append(text)
        turns.append(turn)
    try:
        rendered: str = tokenizer.apply_chat_template(
            turns,
            tools=list(tools) or None,
            tokenize=False,
            add_generation_prompt=True,
            strftime_now=_TODAY.strftime,
        )
    except Exception as error:  # the template's own code, which may raise anything
        raise ChatUnreadable(f"the policy's chat template refuses these messages: {error}") from error
    ids: list[int] = []
    for place, piece in enumerate(_MARKS.split(rendered)):
        ids += encode_text(tokenizer, contents[int(piece)]) if place % 2 else encode_frame(tokenizer, piece)
    return ids


def _with_arguments(call: Any) -> Any:
    """A tool call whose arguments are plain values, as templates expect them; the wire format has them as JSON."""
    try:
        function = call["function"]
        return {**call, "function": {**function, "arguments": msgspec.json.decode(function["arguments"])}}
    except (TypeError, KeyError, msgspec.DecodeError):
        return call
