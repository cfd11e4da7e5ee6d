"""Helpers of the solutions: parse an instruction, find elements of a page, make actions."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from hindcast.core.domain.action import Action
from hindcast.core.domain.observation import Node, Page

Found = TypeVar("Found")
Solve = Callable[[str, Page, Sequence[Action]], Action]
"""Instruction, page, earlier actions -> next action."""

SOLUTIONS: dict[str, Solve] = {}
"""Solutions by family; `solves` fills it as the modules of solutions are imported."""


def solves(*families: str) -> Callable[[Solve], Solve]:
    """Register a solution of the named families."""

    def register(solve: Solve) -> Solve:
        SOLUTIONS.update(dict.fromkeys(families, solve))
        return solve

    return register


def quoted(instruction: str) -> list[str]:
    """The instruction's parts in double quotes."""
    return re.findall(r'"([^"]*)"', instruction)


def between(instruction: str, before: str, after: str) -> str:
    """The instruction's part between two texts, or an empty text."""
    match = re.search(re.escape(before) + r"(.*?)" + re.escape(after), instruction)
    return match.group(1) if match else ""


def live(page: Page, *kinds: str) -> list[Node]:
    """Elements that can be acted upon, of the named kinds if there are any."""
    return [node for node in page.nodes if node.id is not None and (not kinds or node.kind in kinds)]


def find(page: Page, text: str, *kinds: str) -> Node | None:
    """The first live node with this text."""
    return next((node for node in live(page, *kinds) if node.text == text), None)


def hint(node: Node) -> str:
    """Name of a node without text: its class on the page."""
    return "" if node.text else node.attributes.get("class", "")


def hinted(page: Page, name: str) -> Node | None:
    """The first live node without text that has this class."""
    return next((node for node in live(page) if hint(node) == name), None)


def first(nodes: Iterable[Found]) -> Found | None:
    """The first node, if there is any."""
    return next(iter(nodes), None)


def position(instruction: str) -> int:
    """The first ordinal of the instruction (`2nd`), counted from 0; 0 if there is none."""
    match = re.search(r"(\d+)(?:st|nd|rd|th)\b", instruction)
    return int(match.group(1)) - 1 if match else 0


def click(node: Node | None) -> Action:
    """A click on the node; an exit where the page does not show it."""
    if node is None:
        return Action(name="exit", argument="not found")
    return Action(name="Click", element=node.id)


def enter(node: Node | None, text: str) -> Action:
    """Text into a field; an exit where there is none."""
    if node is None:
        return click(None)
    return Action(name="Type", element=node.id, argument=text)


def press(key: str, node: Node | None = None) -> Action:
    """A key, on a node or on the focused element."""
    return Action(name="Press", argument=key, element=node.id if node is not None else None)


def submit(page: Page) -> Action:
    """A click on the page's last button."""
    return click(first(reversed(live(page, "button"))))


def fill(page: Page, texts: Sequence[str], earlier: Sequence[Action]) -> Action:
    """Type the texts into the page's inputs, in order, then click its button."""
    typed = sum(1 for action in earlier if action.name == "Type")
    inputs = live(page, "input")
    if typed < len(texts):
        return enter(inputs[typed], texts[typed]) if typed < len(inputs) else click(None)
    return submit(page)


SCROLL_DOWN = Action(name="Scroll Down")
SCROLL_UP = Action(name="Scroll Up")
WAIT = Action(name="Wait")
