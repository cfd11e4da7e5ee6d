"""The contexts of an episode that an agent of the user's own plays: which of its calls continue which chat.

A call continues a chat if its messages begin with all messages of that chat, the policy's latest answer included. An agent that
rewrites its messages (it summarizes, drops old pages, asks a second model) or asks the same thing again begins another context of
the same episode. Contexts are numbered from 0 in the order of their first answers.

Messages are compared by role, text, and name and arguments of tool calls. Ids, spaces around a text, and fields that a client adds
or leaves out do not count.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from hindcast.core.prompts.chat_messages import text_of


class Turn(NamedTuple):
    """What counts of a message when chats are compared."""

    role: str
    text: str
    calls: tuple[tuple[str, str], ...]
    """Name and arguments of each call of a tool; arguments as JSON with sorted keys."""


class Contexts:
    """The contexts of one episode."""

    def __init__(self) -> None:
        self._chats: list[list[Turn]] = []
        """By number: the messages of the context's latest call, and the answer to it."""

    def add(self, turns: list[Turn], answer: Turn) -> int:
        """Add a call and its answer; returns the number of its context, the longest one that the call continues."""
        continued = [number for number, chat in enumerate(self._chats) if turns[: len(chat)] == chat]
        if continued:
            number = max(continued, key=lambda index: len(self._chats[index]))
        else:
            number = len(self._chats)
            self._chats.append([])
        self._chats[number] = [*turns, answer]
        return number


def turns_of(messages: Sequence[Mapping[str, Any]]) -> list[Turn]:
    """What counts of each message. Raises ChatUnreadable."""
    return [
        Turn(
            str(message.get("role")),
            text_of(message.get("content")).strip(),
            tuple(_call(tool_call) for tool_call in message.get("tool_calls") or ()),
        )
        for message in messages
    ]


def _call(call: Any) -> tuple[str, str]:
    """Name and arguments of a call; one in a form of its own counts as it is."""
    match call:
        case {"function": {"name": str(name), "arguments": str(arguments)}}:
            with suppress(msgspec.DecodeError):
                arguments = msgspec.json.encode(msgspec.json.decode(arguments), order="sorted").decode()
            return name, arguments
        case _:
            return "", repr(call)
