"""Parser of calls in text: `name(value, …, key=value, …)`. A small grammar: nothing is ever evaluated.

Strings are those of Python, because models write them so: both quotes, also tripled, the prefixes `r` and `u`, all
escapes, adjacent strings joined. An escape that Python refuses is kept as text, and a line break needs no triple quotes.
White space, comments (`# …`) and Markdown code fences may separate values.
"""

import re
import unicodedata
from typing import NamedTuple

from hindcast.core.domain.action import ACTIONS, Action

_ESCAPES = dict(zip("ntrabfv\\\"'", "\n\t\r\a\b\f\v\\\"'", strict=True))
_CODE = re.compile(r"[0-7]{1,3}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|N\{[^{}\n]{1,80}\}")
_LINE_BREAK = re.compile(r"\r\n?|\n")
_SPACE = re.compile(r"(?:\s|\\\r?\n|#[^\n]*|```[^\n]*)*")
_CALL = re.compile(r"([A-Za-z_]\w*)\s*\(")
_KEYWORD = re.compile(r"([A-Za-z_]\w*)\s*=(?!=)")
_QUOTE = re.compile(r"([rRuU]?)(\"\"\"|'''|\"|')")
_NUMBER = re.compile(r"-?\d{1,9}(?:\.\d{1,9})?")
_WORD = re.compile(r"(?:True|False|None|true|false|null)\b")
_ELEMENT = re.compile(r"\[?\s*(\d{1,6})\s*\]?")
_CLOSED_BY = {"(": ")", "[": "]"}
_MAX_NESTING = 8
"""Most brackets and parentheses around one value."""

Arguments = tuple[list[str], dict[str, str]]
"""Positional values in order, and named values."""


class Call(NamedTuple):
    """A call and its end in the text."""

    name: str
    arguments: Arguments
    end: int
    """Position after the closing parenthesis."""


class MalformedCall(Exception):
    """A text is not a valid call; becomes a `ParseFailure` with this reason."""

    def __init__(self, reason: str, position: int = 0) -> None:
        """`position`: position up to which the text was parsed."""
        super().__init__(reason)
        self.at = position


def quoted(text: str) -> str:
    """Quote a text as a value that `read_call` reads back."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    for letter, character in (("n", "\n"), ("t", "\t"), ("r", "\r")):
        escaped = escaped.replace(character, f"\\{letter}")
    return f'"{escaped}"'


def abbreviated(text: str) -> str:
    """Quote a text for a message, cut to 60 characters."""
    return repr(text if len(text) <= 60 else text[:59] + "…")


def skip_space(text: str, position: int = 0) -> int:
    """Find the next character that is not white space, comment or code fence."""
    match = _SPACE.match(text, position)
    return match.end() if match else position


def read_call(text: str, position: int = 0) -> Call:
    """Read the call that begins at a position; its values are strings, numbers or words. Raises MalformedCall.

    A list of one value is that value, an empty list an empty text. If a name is given twice, the last value counts.
    """
    position = skip_space(text, position)
    match = _CALL.match(text, position)
    if match is None:
        raise MalformedCall(
            f"expected a call such as do(action=…), found {abbreviated(text[position:])}", position
        )
    name, position = match.group(1), match.end()
    positional: list[str] = []
    keywords: dict[str, str] = {}
    while True:
        position = skip_space(text, position)
        if text.startswith(")", position):
            return Call(name, (positional, keywords), position + 1)
        keyword = _KEYWORD.match(text, position)
        if keyword is not None:
            value, position = _read_value(text, keyword.end())
            keywords[keyword.group(1)] = value
        else:
            if keywords:
                raise MalformedCall(f"a value without a name follows {list(keywords)[-1]}=…", position)
            value, position = _read_value(text, position)
            positional.append(value)
        position = skip_space(text, position)
        if text.startswith(",", position):
            position += 1
        elif not text.startswith(")", position):
            raise MalformedCall(
                f"expected , or ) after {abbreviated(value)}, found {abbreviated(text[position : position + 20])}",
                position,
            )


def _read_value(text: str, position: int, *, depth: int = 0) -> tuple[str, int]:
    position = skip_space(text, position)
    if _QUOTE.match(text, position):
        return _read_strings(text, position)
    opening = text[position : position + 1]
    if opening in _CLOSED_BY and depth < _MAX_NESTING:
        return _read_enclosed(text, position + 1, opening, depth=depth + 1)
    for pattern in (_NUMBER, _WORD):
        match = pattern.match(text, position)
        if match is not None:
            return match.group(), match.end()
    raise MalformedCall(
        f"expected a quoted text, found {abbreviated(text[position : position + 20])}", position
    )


def _read_enclosed(text: str, position: int, opening: str, *, depth: int) -> tuple[str, int]:
    """Read a list of at most one value, or a value in parentheses."""
    closing = _CLOSED_BY[opening]
    position = skip_space(text, position)
    if opening == "[" and text.startswith("]", position):
        return "", position + 1
    if opening == "[" and text.startswith("[", position):
        raise MalformedCall(
            f"expected a text in a list, found {abbreviated(text[position : position + 20])}", position
        )
    value, position = _read_value(text, position, depth=depth)
    position = skip_space(text, position)
    if not text.startswith(closing, position):
        expected = "a list of one value" if opening == "[" else ")"
        raise MalformedCall(
            f"expected {expected}, found {abbreviated(text[position : position + 20])} after {abbreviated(value)}",
            position,
        )
    return value, position + 1


def _read_strings(text: str, position: int) -> tuple[str, int]:
    """Read adjacent strings as one."""
    value = ""
    while (opening := _QUOTE.match(text, position)) is not None:
        part, end = _read_string(text, opening.end(), opening[2], raw=opening[1] in ("r", "R"))
        value += part
        position = skip_space(text, end)
    return value, end


def _read_string(text: str, position: int, quote: str, *, raw: bool) -> tuple[str, int]:
    characters: list[str] = []
    while position < len(text):
        if text.startswith(quote, position):
            return "".join(characters), position + len(quote)
        if text[position] == "\\" and position + 1 < len(text):
            piece, position = (
                (text[position : position + 2], position + 2) if raw else _read_escape(text, position + 1)
            )
        elif len(quote) > 1 and (line_break := _LINE_BREAK.match(text, position)):
            piece, position = "\n", line_break.end()
        else:
            piece, position = text[position], position + 1
        characters.append(piece)
    raise MalformedCall(
        f"the text that begins with {abbreviated(''.join(characters))} is not closed", position
    )


def _read_escape(text: str, position: int) -> tuple[str, int]:
    """Read the escape after a backslash; return its text and end."""
    if line_break := _LINE_BREAK.match(text, position):
        return "", line_break.end()
    code = _CODE.match(text, position)
    if code is not None and (character := _coded(code.group())) is not None:
        return character, code.end()
    return _ESCAPES.get(text[position], "\\" + text[position]), position + 1


def _coded(escape: str) -> str | None:
    """Find the character of an escape by number or name; None if there is none, or it is a surrogate."""
    if escape.startswith("N"):
        try:
            character = unicodedata.lookup(escape[2:-1])
        except KeyError:
            return None
        return character if len(character) == 1 else None
    number = int(escape, 8) if escape[0] in "01234567" else int(escape[1:], 16)
    half = 0xD800 <= number <= 0xDFFF
    return None if half or number > 0x10FFFF else chr(number)


def _element_number(value: str) -> int:
    match = _ELEMENT.fullmatch(value.strip())
    if match is None:
        raise MalformedCall(f"expected an element's number, found {abbreviated(value)}")
    return int(match.group(1))


def checked(name: str, element: str | None, argument: str | None) -> Action:
    """Make an action and check its arguments against `ACTIONS`. Arguments that it does not take are dropped, as WebRL does.

    Raises MalformedCall.
    """
    takes = ACTIONS[name]
    if takes.element == "none" or (
        takes.element == "optional" and element is not None and not element.strip()
    ):
        element = None
    elif takes.element == "required" and element is None:
        raise MalformedCall(f"{name} needs element=…")
    if takes.argument == "none":
        argument = None
    elif takes.argument == "required" and argument is None:
        raise MalformedCall(f"{name} needs argument=…")
    return Action(name=name, element=None if element is None else _element_number(element), argument=argument)
