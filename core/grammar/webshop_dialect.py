"""WebShop's dialect for text agents: `search[keywords]`, `click[text of a button]`, ReAct's `think[…]`.

It names elements by their text, so that parsing needs the page.
"""

import re

from hindcast.core.domain.action import Action, ParseFailure
from hindcast.core.domain.observation import Node, Page

_BRACKETED = re.compile(r"(?:action\s*:\s*)?(search|click|think)\s*\[(.*)\]", re.DOTALL | re.IGNORECASE)
_CLICKED = frozenset({"button", "link", "radio", "checkbox", "clickable"})
_SHOWN_CHARS = 60


def read_bracketed(call: str, page: Page | None) -> Action | ParseFailure | None:
    """Parse a call on a page; None if the text is of another dialect. `think[…]` becomes the action `Wait`.

    >>> read_bracketed("think[lamps first]", None)
    Action(name='Wait')
    """
    found = _BRACKETED.fullmatch(call.strip())
    if found is None:
        return None
    name, argument = found[1].lower(), " ".join(found[2].split())
    if name == "think":
        return Action(name="Wait")
    nodes = () if page is None else page.nodes
    if name == "search":
        field = next((node for node in nodes if node.kind == "input" and node.id is not None), None)
        if field is None:
            return ParseFailure(reason="expected an action that this page offers: it has no search field")
        return Action(name="Search", argument=argument, element=field.id)
    clicked = next((node for node in nodes if _is_called(node, argument)), None)
    if clicked is None:
        return ParseFailure(
            reason=f"expected words of a button, a link or an option of this page, found {argument[:_SHOWN_CHARS]!r}"
        )
    return Action(name="Click", element=clicked.id)


def _is_called(node: Node, words: str) -> bool:
    return (
        node.id is not None and node.kind in _CLICKED and " ".join(node.text.split()).lower() == words.lower()
    )
