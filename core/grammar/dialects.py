"""Dialects of actions in answers: BrowserGym's functions and WebShop's brackets, read as actions; BrowserGym's are also written.

BrowserGym (`click('12')`, `fill('5', 'text')`): names and parameters are those of its `highlevel` action set (BrowserGym 0.14,
`browsergym.core.action.functions`). What our actions lack is refused with the reason, never half done: double clicks, modifiers,
dragging, uploads, several options at once. Two of our actions have no function there and get one in its style: `search('13',
'mug')`, which types and presses Enter, and `new_tab('/cart')` with an address. Of `scroll` only the direction counts, because
ours moves by most of a window.
WebShop for text agents: `search[keywords]`, `click[text of a button]`, ReAct's `think[…]`. It names elements by their text, so
that parsing needs the page.
"""

import re
from collections.abc import Callable

from hindcast.core.domain.action import Action, ParseFailure
from hindcast.core.domain.observation import Node, Page
from hindcast.core.grammar.calls import Arguments, MalformedCall, abbreviated, checked, quoted

INFEASIBLE = "N/A"
"""Message of an agent that reports its task as infeasible, as in WebArena."""
SCROLL_PIXELS = 500
"""Pixels with which a scroll is written."""

Read = Callable[[Arguments], Action]


def read_browsergym(name: str, arguments: Arguments) -> Action | None:
    """Read a call of a BrowserGym function; None if there is no function of this name. Raises MalformedCall."""
    if name in _REFUSED:
        raise MalformedCall(f"{name}(…) is not offered: {_REFUSED[name]}")
    reader = _FUNCTIONS.get(name)
    return None if reader is None else reader(arguments)


def write_browsergym(action: Action, *, bid: str | None = None) -> str:
    """Write an action as a call that `read_browsergym` reads back; with `bid`, BrowserGym's element id, for BrowserGym itself.

    >>> write_browsergym(Action(name="Type", element=5, argument="brass lamp"))
    'fill("5", "brass lamp")'
    """
    element = "" if action.element is None else quoted(str(action.element) if bid is None else bid)
    text = "" if action.argument is None else quoted(action.argument)
    match action.name:
        case "Right Click":
            return f'click({element}, button="right")'
        case "Press" if not element:
            return f"keyboard_press({text})"
        case "Scroll Up":
            return f"scroll(0, -{SCROLL_PIXELS})"
        case "Scroll Down":
            return f"scroll(0, {SCROLL_PIXELS})"
        case "Tab_focus" if re.fullmatch(r"[0-9]{1,9}", action.argument or ""):
            return f"tab_focus({action.argument})"
        case "exit" if action.argument == INFEASIBLE:
            return f"report_infeasible({text})"
    return f"{_WRITTEN[action.name]}({', '.join(filter(None, (element, text)))})"


_WRITTEN = {
    "Click": "click",
    "Hover": "hover",
    "Type": "fill",
    "Search": "search",
    "Press": "press",
    "Select Dropdown Option": "select_option",
    "Wait": "noop",
    "New_tab": "new_tab",
    "Tab_focus": "tab_focus",
    "Close_tab": "tab_close",
    "Goto": "goto",
    "Go_backward": "go_back",
    "Go_forward": "go_forward",
    "exit": "send_msg_to_user",
}
"""Action -> function, for functions that take element and text in this order."""


def _values(arguments: Arguments, *parameters: str) -> dict[str, str]:
    """Match arguments to parameters. Raises MalformedCall for too many values or unknown names."""
    positional, keywords = arguments
    if len(positional) > len(parameters):
        raise MalformedCall(f"expected at most {len(parameters)} values, found {len(positional)}")
    values = dict(zip(parameters, positional, strict=False))
    for name, value in keywords.items():
        if name not in parameters:
            raise MalformedCall(f"expected {', '.join(parameters) or 'no values'}, found {abbreviated(name)}")
        if name in values:
            raise MalformedCall(f"argument {name} is given twice")
        values[name] = value
    return values


def _call_of(action: str, *parameters: str, element: str = "", argument: str = "") -> Read:
    """Make the reader of one function from its parameters in order; `element` and `argument` name two of them."""

    def read(arguments: Arguments) -> Action:
        values = _values(arguments, *parameters)
        return checked(action, values.get(element), values.get(argument))

    return read


def _click(arguments: Arguments) -> Action:
    values = _values(arguments, "bid", "button", "modifiers")
    if values.get("modifiers"):
        raise MalformedCall(f"a click with {abbreviated(values['modifiers'])} held is not offered")
    button = values.get("button", "left")
    name = {"left": "Click", "right": "Right Click"}.get(button)
    if name is None:
        raise MalformedCall(f"expected the left or the right button, found {abbreviated(button)}")
    return checked(name, values.get("bid"), None)


def _scroll(arguments: Arguments) -> Action:
    values = _values(arguments, "delta_x", "delta_y")
    try:
        delta_y = float(values.get("delta_y", "0"))
    except ValueError:
        raise MalformedCall(f"expected a number of pixels, found {abbreviated(values['delta_y'])}") from None
    if not delta_y:
        raise MalformedCall("expected pixels to scroll up or down, such as scroll(0, 200)")
    return Action(name="Scroll Down" if delta_y > 0 else "Scroll Up")


def _clear(arguments: Arguments) -> Action:
    return checked("Type", _values(arguments, "bid").get("bid"), "")


def _infeasible(arguments: Arguments) -> Action:
    _values(arguments, "reason")
    return Action(name="exit", argument=INFEASIBLE)


_FUNCTIONS: dict[str, Read] = {
    "click": _click,
    "hover": _call_of("Hover", "bid", element="bid"),
    "fill": _call_of("Type", "bid", "value", "enable_autocomplete_menu", element="bid", argument="value"),
    "clear": _clear,
    "search": _call_of("Search", "bid", "value", element="bid", argument="value"),
    "select_option": _call_of("Select Dropdown Option", "bid", "options", element="bid", argument="options"),
    "press": _call_of("Press", "bid", "key_comb", element="bid", argument="key_comb"),
    "keyboard_press": _call_of("Press", "key", argument="key"),
    "scroll": _scroll,
    "noop": _call_of("Wait", "wait_ms"),
    "new_tab": _call_of("New_tab", "url", argument="url"),
    "tab_focus": _call_of("Tab_focus", "index", argument="index"),
    "tab_close": _call_of("Close_tab"),
    "goto": _call_of("Goto", "url", argument="url"),
    "go_back": _call_of("Go_backward"),
    "go_forward": _call_of("Go_forward"),
    "send_msg_to_user": _call_of("exit", "text", argument="text"),
    "report_infeasible": _infeasible,
}

_REFUSED = {
    "dblclick": "click twice",
    "drag_and_drop": "nothing is dragged here",
    "focus": "a click focuses",
    "check": "a click checks",
    "uncheck": "a click unchecks",
    "upload_file": "nothing is uploaded here",
}
"""BrowserGym's functions that have no action here, and what to do instead."""


_BRACKETED = re.compile(r"(?:action\s*:\s*)?(search|click|think)\s*\[(.*)\]", re.DOTALL | re.IGNORECASE)
_CLICKED = frozenset({"button", "link", "radio", "checkbox", "clickable"})
_SHOWN_CHARS = 60


def read_bracketed(call: str, page: Page | None) -> Action | ParseFailure | None:
    """Parse a call on a page; None if the text is of another dialect. `think[…]` becomes the action `Wait`.

    >>> read_bracketed("think[lamps first]", None)
    Action(name='Wait')
    """
    match = _BRACKETED.fullmatch(call.strip())
    if match is None:
        return None
    name, argument = match[1].lower(), " ".join(match[2].split())
    if name == "think":
        return Action(name="Wait")
    nodes = () if page is None else page.nodes
    if name == "search":
        field = next((node for node in nodes if node.kind == "input" and node.id is not None), None)
        if field is None:
            return ParseFailure(reason="expected an action that this page offers: it has no search field")
        return Action(name="Search", argument=argument, element=field.id)
    target = next((node for node in nodes if _is_called(node, argument)), None)
    if target is None:
        return ParseFailure(
            reason=f"expected words of a button, a link or an option of this page, found {argument[:_SHOWN_CHARS]!r}"
        )
    return Action(name="Click", element=target.id)


def read_text(text: str, page: Page | None) -> Action | ParseFailure:
    """Parse a whole answer as the action on a page of text: the choice with these words, or typing into the page's field.

    >>> from hindcast.core.domain.observation import Node
    >>> read_text("go north", Page(url="", title="", nodes=(Node(kind="textarea", tag="textarea", id=1),)))
    Action(name='Type', element=1, argument='go north')
    """
    answer = text.strip()
    nodes = () if page is None else page.nodes
    target = next((node for node in nodes if _is_called(node, answer)), None)
    if target is not None:
        return Action(name="Click", element=target.id)
    field = next((node for node in nodes if node.kind in ("textarea", "input") and node.id is not None), None)
    if field is not None and answer:
        return Action(name="Type", element=field.id, argument=answer)
    offered = [node.text for node in nodes if node.id is not None and node.kind in _CLICKED]
    expected = f"one of {', '.join(offered)}" if offered else "a text"
    return ParseFailure(reason=f"expected {expected}, found {abbreviated(answer)}")


def written_text(action: Action, page: Page) -> str:
    """Write an action on a page of text so that `read_text` reads it back."""
    if action.argument is not None:
        return action.argument
    return next((node.text for node in page.nodes if node.id == action.element), "")


def _is_called(node: Node, label: str) -> bool:
    return (
        node.id is not None and node.kind in _CLICKED and " ".join(node.text.split()).lower() == label.lower()
    )
