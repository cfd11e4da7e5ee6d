"""Answers of a policy to actions and back. A small grammar of our own: nothing in an answer is ever evaluated.

Read are WebRL's dialect (`do(action="Click", element="7")`, `exit(message="…")`) and BrowserGym's (`click('12')`),
after any number of comment lines (`# Element: …`, `# Note: …`). An answer that fits neither is a `ParseFailure`, a
value like any other: parsing never raises.
"""

import re
from collections.abc import Callable

from core.action import ACTIONS, Action, ParseFailure
from core.observation import Node, Page

ELEMENT_TEXT_CHARS = 40
"""Length of the element's text in the comment that precedes a formatted action."""
NOTE_CHARS = 80
"""Longer lines of a page are not quoted before a message."""
MAX_ANSWER_CHARS = 20_000
"""Longer answers are not read at all."""

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'"}
_CALL = re.compile(r"\s*([A-Za-z_]\w*)\s*\(")
_KEYWORD = re.compile(r"\s*([A-Za-z_]\w*)\s*=")
_NUMBER = re.compile(r"\s*(-?\d{1,9}(?:\.\d{1,9})?)")
_WORD = re.compile(r"\s*(True|False|None|true|false|null)\b")
_ELEMENT = re.compile(r"\[?\s*(\d{1,6})\s*\]?")

_Arguments = tuple[list[str], dict[str, str]]


class _Unreadable(Exception):
    """Why the text is no call; becomes a ParseFailure."""


def parse_answer(text: str) -> Action | ParseFailure:
    """The action an answer asks for, or why it asks for none."""
    if len(text) > MAX_ANSWER_CHARS:
        return ParseFailure(reason=f"answer has {len(text)} characters, at most {MAX_ANSWER_CHARS} are read")
    call = "\n".join(line for line in _outside_fences(text) if not line.lstrip().startswith("#")).strip()
    if not call:
        return ParseFailure(reason='expected a call such as do(action="Click", element="7"), found nothing')
    try:
        name, (positional, named) = _read_call(call)
        if name == "do":
            return _webrl(positional, named)
        if name == "exit":
            return Action(name="exit", argument=_only(positional, named, "message"))
        if name in _BROWSERGYM:
            return _BROWSERGYM[name](positional, named)
        if _fold(name) in _NAMES and not positional:
            return _webrl([name], named)
        raise _Unreadable(f"expected do(…) or exit(…), found {_show(name)}(…)")
    except _Unreadable as unreadable:
        return ParseFailure(reason=str(unreadable))


def format_answer(action: Action, page: Page) -> str:
    """The answer that demonstrations give: what is looked at, then the call that `parse_answer` reads back.

    Looked at is the element, or the line of the page that a message is taken from. Quoting it first turns finding an
    id or a value into copying on from the place that was found, which a small model learns far sooner.

    >>> from core.observation import Page
    >>> print(format_answer(Action(name="Click", element=7), Page(url="", title="", nodes=())))
    # Element: [7]
    do(action="Click", element="7")
    """
    if action.name == "exit":
        if action.argument is None:
            return "exit()"
        return f"{_note(page, action.argument)}exit(message={_quote(action.argument)})"
    parts = [f"action={_quote(action.name)}"]
    if action.argument is not None:
        parts.append(f"argument={_quote(action.argument)}")
    if action.element is not None:
        parts.append(f'element="{action.element}"')
    call = f"do({', '.join(parts)})"
    if action.element is None:
        return call
    node = next((node for node in page.nodes if node.id == action.element), None)
    return f"# Element: {_comment(node)}[{action.element}]\n{call}"


def _comment(node: Node | None) -> str:
    if node is None:
        return ""
    text = " ".join((node.text or node.attributes.get("class", "")).split())[:ELEMENT_TEXT_CHARS].rstrip()
    return f"{text} " if text else ""


def _note(page: Page, message: str) -> str:
    """A comment with the first line of the page that holds the message; with the line before where it is nothing else."""
    whole = re.compile(rf"(?<!\w){re.escape(message)}(?!\w)")
    before = ""
    for node in page.nodes:
        text = " ".join(node.text.split())
        if message and len(text) <= NOTE_CHARS and whole.search(text):
            quoted = f"{before} | {text}" if text == message and 0 < len(before) <= NOTE_CHARS else text
            return f"# Note: {quoted}\n"
        before = text
    return ""


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    for letter, character in (("n", "\n"), ("t", "\t"), ("r", "\r")):
        escaped = escaped.replace(character, f"\\{letter}")
    return f'"{escaped}"'


def _outside_fences(text: str) -> list[str]:
    """The answer's lines without Markdown's code fences."""
    return [line for line in text.split("\n") if not line.lstrip().startswith("```")]


def _show(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:59] + "…")


def _read_call(text: str) -> tuple[str, _Arguments]:
    """`name(value, …, key=value, …)` with string, number or word values and nothing after it."""
    match = _CALL.match(text)
    if match is None:
        raise _Unreadable(f"expected a call such as do(action=…), found {_show(text)}")
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
                raise _Unreadable(f"argument {keyword.group(1)} is given twice")
            named[keyword.group(1)] = value
        else:
            if named:
                raise _Unreadable(f"a value without a name follows {list(named)[-1]}=…")
            value, at = _read_value(text, at)
            positional.append(value)
        at = _skip_space(text, at)
        if text.startswith(",", at):
            at += 1
        elif not text.startswith(")", at):
            raise _Unreadable(f"expected , or ) after {_show(value)}, found {_show(text[at : at + 20])}")
    rest = text[at + 1 :].strip()
    if rest and not rest.startswith("#"):
        raise _Unreadable(f"expected one call, found {_show(rest)} after it")
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
    for pattern in (_NUMBER, _WORD):
        match = pattern.match(text, at)
        if match is not None:
            return match.group(1), match.end()
    raise _Unreadable(f"expected a quoted text, found {_show(text[at : at + 20])}")


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
    raise _Unreadable(f"the text that begins with {_show(''.join(characters))} is not closed")


def _element_number(value: str) -> int:
    match = _ELEMENT.fullmatch(value.strip())
    if match is None:
        raise _Unreadable(f"expected an element's number, found {_show(value)}")
    return int(match.group(1))


def _fold(name: str) -> str:
    return name.strip().lower().replace("_", " ")


_NAMES = {_fold(name): name for name in ACTIONS}


def _webrl(positional: list[str], named: dict[str, str]) -> Action:
    if len(positional) > 1:
        raise _Unreadable(f"do(…) takes one value without a name, found {len(positional)}")
    if positional:
        if "action" in named:
            raise _Unreadable("argument action is given twice")
        named = {"action": positional[0], **named}
    unknown = set(named) - {"action", "element", "argument", "message"}
    if unknown:
        raise _Unreadable(f"do(…) takes action, element and argument, found {_show(min(unknown))}")
    if "action" not in named:
        raise _Unreadable('do(…) lacks its action, such as action="Click"')
    asked = named["action"].strip()
    argument = named.get("argument", named.get("message"))
    if asked.lower().startswith("press "):  # WebRL's prompt names the key here: do(action="Press Enter")
        asked, argument = "Press", asked[len("press ") :]
    name = _NAMES.get(_fold(asked))
    if name is None:
        raise _Unreadable(f"unknown action {_show(asked)}; known are {', '.join(ACTIONS)}")
    return _action(name, named.get("element"), argument)


def _action(name: str, element: str | None, argument: str | None) -> Action:
    """Checks the arguments against the table; what an action does not take is dropped, as WebRL's answers need."""
    takes = ACTIONS[name]
    if takes.element == "none" or (
        takes.element == "optional" and element is not None and not element.strip()
    ):
        element = None
    elif takes.element == "required" and element is None:
        raise _Unreadable(f"{name} needs element=…")
    if takes.argument == "none":
        argument = None
    elif takes.argument == "required" and argument is None:
        raise _Unreadable(f"{name} needs argument=…")
    return Action(name=name, element=None if element is None else _element_number(element), argument=argument)


def _only(positional: list[str], named: dict[str, str], name: str) -> str | None:
    """The one optional text argument of a call."""
    unknown = set(named) - {name}
    if unknown or len(positional) + len(named) > 1:
        raise _Unreadable(f"expected at most {name}=…, found {len(positional) + len(named)} values")
    return positional[0] if positional else named.get(name)


def _spread(positional: list[str], named: dict[str, str], names: tuple[str, ...]) -> dict[str, str]:
    if len(positional) > len(names):
        raise _Unreadable(f"expected at most {len(names)} values, found {len(positional)}")
    return {**dict(zip(names, positional, strict=False)), **named}


def _call_of(name: str, *parameters: str, element: str = "", argument: str = "") -> Callable[..., Action]:
    """A reader of one BrowserGym function: its parameters in order, which of them are element and argument."""

    def read(positional: list[str], named: dict[str, str]) -> Action:
        values = _spread(positional, named, parameters)
        return _action(name, values.get(element), values.get(argument))

    return read


def _scroll(positional: list[str], named: dict[str, str]) -> Action:
    values = _spread(positional, named, ("delta_x", "delta_y"))
    try:
        down = float(values.get("delta_y", "0")) >= 0
    except ValueError:
        raise _Unreadable(f"expected a number of pixels, found {_show(values['delta_y'])}") from None
    return Action(name="Scroll Down" if down else "Scroll Up")


_BROWSERGYM: dict[str, Callable[..., Action]] = {
    "click": _call_of("Click", "bid", "button", "modifiers", element="bid"),
    "dblclick": _call_of("Click", "bid", "button", "modifiers", element="bid"),
    "hover": _call_of("Hover", "bid", element="bid"),
    "fill": _call_of("Type", "bid", "value", element="bid", argument="value"),
    "select_option": _call_of("Select Dropdown Option", "bid", "options", element="bid", argument="options"),
    "press": _call_of("Press", "bid", "key_comb", element="bid", argument="key_comb"),
    "keyboard_press": _call_of("Press", "key", argument="key"),
    "scroll": _scroll,
    "noop": _call_of("Wait", "wait_ms"),
    "new_tab": _call_of("New_tab"),
    "tab_focus": _call_of("Tab_focus", "index", argument="index"),
    "tab_close": _call_of("Close_tab"),
    "goto": _call_of("Goto", "url", argument="url"),
    "go_back": _call_of("Go_backward"),
    "go_forward": _call_of("Go_forward"),
    "send_msg_to_user": _call_of("exit", "text", argument="text"),
    "report_infeasible": _call_of("exit", "reason", argument="reason"),
}
"""BrowserGym's function names (its `highlevel` action set) with their parameters."""
