"""Calls as text: `name(value, …, key=value, …)`, read and written. A small grammar of our own: nothing is ever evaluated."""

import re

from core.action import ACTIONS, Action

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'"}
_CALL = re.compile(r"\s*([A-Za-z_]\w*)\s*\(")
_KEYWORD = re.compile(r"\s*([A-Za-z_]\w*)\s*=")
_NUMBER = re.compile(r"\s*(-?\d{1,9}(?:\.\d{1,9})?)")
_WORD = re.compile(r"\s*(True|False|None|true|false|null)\b")
_ELEMENT = re.compile(r"\[?\s*(\d{1,6})\s*\]?")

Arguments = tuple[list[str], dict[str, str]]
"""Values without a name in their order, and those with one."""


class Unreadable(Exception):
    """Why a text is no call that can be carried out; becomes a ParseFailure."""


def quoted(text: str) -> str:
    """The text as a value that `read_call` reads back."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    for letter, character in (("n", "\n"), ("t", "\t"), ("r", "\r")):
        escaped = escaped.replace(character, f"\\{letter}")
    return f'"{escaped}"'


def shown(text: str) -> str:
    """The text, cut where it is long, for a message."""
    return repr(text if len(text) <= 60 else text[:59] + "…")


def read_call(text: str) -> tuple[str, Arguments]:
    """`name(value, …, key=value, …)` with string, number or word values and nothing after it. Raises Unreadable.

    A list of one value is that value, an empty one an empty text.
    """
    match = _CALL.match(text)
    if match is None:
        raise Unreadable(f"expected a call such as do(action=…), found {shown(text)}")
    name, at = match.group(1), match.end()
    positional: list[str] = []
    named: dict[str, str] = {}
    while True:
        at = _skip_space(text, at)
        if text.startswith(")", at):
            break
        keyword = _KEYWORD.match(text, at)
        if keyword is not None:
            value, at = _read_value(text, keyword.end())
            if keyword.group(1) in named:
                raise Unreadable(f"argument {keyword.group(1)} is given twice")
            named[keyword.group(1)] = value
        else:
            if named:
                raise Unreadable(f"a value without a name follows {list(named)[-1]}=…")
            value, at = _read_value(text, at)
            positional.append(value)
        at = _skip_space(text, at)
        if text.startswith(",", at):
            at += 1
        elif not text.startswith(")", at):
            raise Unreadable(f"expected , or ) after {shown(value)}, found {shown(text[at : at + 20])}")
    rest = text[at + 1 :].strip()
    if rest and not rest.startswith("#"):
        raise Unreadable(f"expected one call, found {shown(rest)} after it")
    return name, (positional, named)


def _skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _read_value(text: str, at: int) -> tuple[str, int]:
    at = _skip_space(text, at)
    quote = text[at : at + 1]
    if quote in ('"', "'"):
        return _read_string(text, at + 1, quote)
    if quote == "[":
        return _read_list(text, at + 1)
    for pattern in (_NUMBER, _WORD):
        match = pattern.match(text, at)
        if match is not None:
            return match.group(1), match.end()
    raise Unreadable(f"expected a quoted text, found {shown(text[at : at + 20])}")


def _read_list(text: str, at: int) -> tuple[str, int]:
    at = _skip_space(text, at)
    if text.startswith("]", at):
        return "", at + 1
    if text.startswith("[", at):
        raise Unreadable(f"expected a text in a list, found {shown(text[at : at + 20])}")
    value, at = _read_value(text, at)
    at = _skip_space(text, at)
    if not text.startswith("]", at):
        raise Unreadable(
            f"expected a list of one value, found {shown(text[at : at + 20])} after {shown(value)}"
        )
    return value, at + 1


def _read_string(text: str, at: int, quote: str) -> tuple[str, int]:
    characters: list[str] = []
    while at < len(text):
        character = text[at]
        if character == quote:
            return "".join(characters), at + 1
        if character == "\\" and at + 1 < len(text):
            following = text[at + 1]
            characters.append(_ESCAPES.get(following, "\\" + following))
            at += 2
            continue
        characters.append(character)
        at += 1
    raise Unreadable(f"the text that begins with {shown(''.join(characters))} is not closed")


def _element_number(value: str) -> int:
    match = _ELEMENT.fullmatch(value.strip())
    if match is None:
        raise Unreadable(f"expected an element's number, found {shown(value)}")
    return int(match.group(1))


def checked(name: str, element: str | None, argument: str | None) -> Action:
    """Checks the arguments against the table; what an action does not take is dropped, as WebRL's answers need."""
    takes = ACTIONS[name]
    if takes.element == "none" or (
        takes.element == "optional" and element is not None and not element.strip()
    ):
        element = None
    elif takes.element == "required" and element is None:
        raise Unreadable(f"{name} needs element=…")
    if takes.argument == "none":
        argument = None
    elif takes.argument == "required" and argument is None:
        raise Unreadable(f"{name} needs argument=…")
    return Action(name=name, element=None if element is None else _element_number(element), argument=argument)
