"""Token ids of a chat in the OpenAI format, by the model's own chat template.

Contents are data, as in `core.prompts.chat_frame`: the template is rendered around marks and cut at them, so that no content
becomes a token that opens or closes a turn. All other text of a request (names and arguments of tool calls, descriptions and
schemas of tools, ids, reasoning) passes through the template, except for special tokens written out in it: marks stand for them.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from hindcast.core.errors import HindcastError
from hindcast.core.ids import digest_hex
from hindcast.core.prompts.chat_frame import encode_frame, encode_text, framing_tokens

_COMPARED = ("role", "type")
"""Keys whose values templates compare: a part of a special token's text in them is left alone."""
_BEFORE, _AFTER = 2, 1
"""Characters that a template may write right before and after a text, as in `</NAME>`."""
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
    marks = _Marks(tokenizer, salt=digest_hex(msgspec.json.encode((messages, tools))))
    turns: list[dict[str, Any]] = []
    for message in messages:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise ChatUnreadable("every message needs a role and a content")
        text = text_of(message.get("content"))
        turn: dict[str, Any] = {name: value for name, value in message.items() if name != "content"}
        if turn.get("tool_calls"):
            turn["tool_calls"] = [_with_arguments(call) for call in turn["tool_calls"]]
        turns.append(marks.protected(turn) | {"content": marks.mark(text)})
    try:
        rendered: str = tokenizer.apply_chat_template(
            turns,
            tools=[marks.protected(tool) for tool in tools] or None,
            tokenize=False,
            add_generation_prompt=True,
            strftime_now=_TODAY.strftime,
        )
    except Exception as error:  # the template's own code, which may raise anything
        raise ChatUnreadable(f"the policy's chat template refuses these messages: {error}") from error
    return marks.encode(rendered)


class _SpecialTexts(NamedTuple):
    """How texts spell the special tokens of a tokenizer: whole, or in part where the template writes the rest."""

    pattern: re.Pattern[str]
    starts: frozenset[str]
    """First characters of special tokens, at least two."""
    ends: frozenset[str]
    """Last characters of special tokens, at least two."""
    inner: frozenset[str]
    """What is left of special tokens without up to `_BEFORE` first and `_AFTER` last characters."""
    longest: int
    """Characters of the longest special token."""


@lru_cache(maxsize=16)
def _special_texts(tokenizer: Any) -> _SpecialTexts:
    texts = sorted(filter(None, framing_tokens(tokenizer).values()), key=len, reverse=True)
    return _SpecialTexts(
        pattern=re.compile(f"({'|'.join(map(re.escape, texts)) or '(?!)'})"),
        starts=frozenset(text[:size] for text in texts for size in range(2, len(text))),
        ends=frozenset(text[-size:] for text in texts for size in range(2, len(text))),
        inner=frozenset(
            text[before : len(text) - after]
            for text in texts
            for before in range(_BEFORE + 1)
            for after in range(_AFTER + 1)
        )
        - {""},
        longest=len(texts[0]) if texts else 0,
    )


class _Marks:
    """Texts that a rendered template must not turn into special tokens, and the marks that stand for them in it."""

    def __init__(self, tokenizer: Any, *, salt: str) -> None:
        """`salt`: a digest of the whole request, so that no text in it can hold a mark."""
        self._tokenizer = tokenizer
        self._salt = salt
        self._texts: list[str] = []
        self._special = _special_texts(tokenizer)

    def mark(self, text: str) -> str:
        """Return the mark of a text; nothing for no text."""
        if not text:
            return ""
        self._texts.append(text)
        return f"mark-{self._salt}-{len(self._texts) - 1}-end"

    def protected(self, value: Any, *, compared: bool = False) -> Any:
        """Copy a JSON value with marks for the special tokens that its texts and keys spell, alone or with the template."""
        if isinstance(value, str):
            return self._protected_text(value, compared=compared)
        if isinstance(value, Mapping):
            return {
                self.protected(key): self.protected(item, compared=key in _COMPARED)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.protected(item) for item in value]
        return value

    def encode(self, rendered: str) -> list[int]:
        """Encode a rendered template: special tokens as such, marked texts as plain text."""
        ids: list[int] = []
        for index, piece in enumerate(re.split(rf"mark-{self._salt}-(\d+)-end", rendered)):
            if index % 2:
                ids += encode_text(self._tokenizer, self._texts[int(piece)])
            else:
                ids += encode_frame(self._tokenizer, piece)
        return ids

    def _protected_text(self, text: str, *, compared: bool) -> str:
        special = self._special
        if not compared and text in special.inner:
            return self.mark(text)
        parts = special.pattern.split(text)  # every second one is a special token
        plain, tokens = parts[::2], parts[1::2]
        head = tail = ""
        if not compared:
            sizes = range(special.longest, 1, -1)
            tail = next((end for size in sizes if (end := plain[-1][-size:]) in special.starts), "")
            plain[-1] = plain[-1].removesuffix(tail)
            head = next((prefix for size in sizes if (prefix := plain[0][:size]) in special.ends), "")
            plain[0] = plain[0].removeprefix(head)
        middle = [
            piece
            for token, text_after in zip(tokens, plain[1:], strict=True)
            for piece in (self.mark(token), text_after)
        ]
        return "".join((self.mark(head), plain[0], *middle, self.mark(tail)))


def _with_arguments(call: Any) -> Any:
    """A tool call whose arguments are plain values, as templates expect them; the wire format has them as JSON."""
    try:
        function = call["function"]
        return {**call, "function": {**function, "arguments": msgspec.json.decode(function["arguments"])}}
    except (TypeError, KeyError, msgspec.DecodeError):
        return call
