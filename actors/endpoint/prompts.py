"""Prompts as versioned text files, and the insertion of a question's values.

A file has a turn per `[system]` or `[user]` on a line of its own, and `$name` where a value is inserted. Values are data:
text in them that looks like one of the file's own marks (`<page>`, `</page>`) is removed, so that no page can close its
place and speak as the question. Every event that rests on a file holds its digest; every change raises its version.
"""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from string import Template
from typing import NamedTuple

import msgspec

from hindcast.actors.endpoint.completion import Message, Schema
from hindcast.core.ids import digest_hex

FOLDER = Path(__file__).parent / "texts"

_TURN = re.compile(r"^\[(system|user)\]$", re.MULTILINE)
_MARK = re.compile(r"</?[a-z]+>")
_THOUGHT = "</think>"


class PromptText(NamedTuple):
    """One prompt file."""

    name: str
    """Purpose and version, such as `verdict-1`."""
    version: str
    digest: str
    """sha256 of the file."""
    turns: tuple[Message, ...]
    """Turns with their placeholders."""

    def filled(self, values: Mapping[str, str]) -> tuple[Message, ...]:
        """The question about these values. Raises KeyError for a placeholder without a value."""
        marks = {mark for turn in self.turns for mark in _MARK.findall(turn.content)}
        placeholder = re.compile("|".join(map(re.escape, sorted(marks))) or r"(?!)", re.IGNORECASE)
        clean = {name: placeholder.sub(" ", value) for name, value in values.items()}
        return tuple(
            Message(turn.role, Template(turn.content).substitute(clean).strip()) for turn in self.turns
        )


@cache
def prompt_text(name: str) -> PromptText:
    """Load a file of `texts` by its name, such as `verdict-1`."""
    content = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    roles = _TURN.split(content)[1:]
    turns = tuple(
        Message("system" if role == "system" else "user", text)
        for role, text in zip(roles[::2], roles[1::2], strict=True)
    )
    return PromptText(name, name.rpartition("-")[2], digest_hex(content.encode()), turns)


def schema_of(kind: type, *, name: str) -> Schema:
    """The JSON schema of a struct, with its root inline, as servers require it."""
    full_schema = msgspec.json.schema(kind)
    definitions = dict(full_schema["$defs"])
    root = definitions.pop(full_schema["$ref"].rpartition("/")[2])
    return Schema(name=name, body=root | ({"$defs": definitions} if definitions else {}))


def said_by(text: str) -> str:
    """A model's text after its visible thinking, if it has any."""
    return text.rpartition(_THOUGHT)[2].strip()


def json_in(text: str) -> bytes:
    """The JSON object in an answer; models put fences and words around it. Raises ValueError where there is none."""
    answer = said_by(text)
    first, last = answer.find("{"), answer.rfind("}")
    if first < 0 or last < first:
        raise ValueError("it holds no JSON object")
    return answer[first : last + 1].encode()
