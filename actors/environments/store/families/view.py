"""How a scripted demonstrator reads a page: only what a person can see there, found by kind and text."""

import re
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

from hindcast.core.domain.action import Action
from hindcast.core.domain.observation import Node, Observation

PRESSABLE = ("link", "button", "clickable")


class PageView:
    """One observation, with look-ups."""

    def __init__(self, observation: Observation) -> None:
        self.nodes = observation.page.nodes
        parts = urlsplit(observation.page.url)
        self.path = parts.path or "/"
        self._query = parse_qs(parts.query)

    def asked(self, name: str) -> str:
        """A parameter of the page's address."""
        return self._query.get(name, [""])[0]

    def _actionable(self, kinds: tuple[str, ...], after: Node | None = None) -> Iterator[Node]:
        reached = after is None
        for node in self.nodes:
            if reached and node.id is not None and not node.disabled and node.kind in kinds:
                yield node
            reached = reached or node is after

    def press(self, text: str, *, after: Node | None = None) -> Node | None:
        """A link or button whose text is this or begins with it and a space."""
        for node in self._actionable(PRESSABLE, after):
            if node.text == text or node.text.startswith(f"{text} "):
                return node
        return None

    def exactly(self, text: str) -> Node | None:
        """A link or button with exactly this text."""
        return next((node for node in self._actionable(PRESSABLE) if node.text == text), None)

    def field(self, label: str, *, after: Node | None = None) -> Node | None:
        """An input, textarea or select by its label."""
        for node in self._actionable(("input", "textarea", "select"), after):
            if label in (node.text, node.attributes.get("aria-label"), node.attributes.get("placeholder")):
                return node
        return None

    def radio(self, label: str) -> Node | None:
        """A radio button by its label."""
        return next((node for node in self._actionable(("radio",)) if node.text.strip() == label), None)

    def find(self, pattern: str) -> str | None:
        """First group of the first node whose text matches entirely."""
        for node in self.nodes:
            matched = re.fullmatch(pattern, node.text.strip())
            if matched:
                return matched.group(1)
        return None

    def says(self, text: str) -> bool:
        """Whether some node's text contains this."""
        return any(text in node.text for node in self.nodes)

    @property
    def cart_count(self) -> int:
        """Pieces in the cart, by the page's header."""
        return int(self.find(r"Cart \((\d+)\)") or 0)


def click(node: Node | None) -> Action:
    """Click the node; scroll down when it is not visible."""
    if node is None:
        return Action(name="Scroll Down")
    return Action(name="Click", element=node.id)


def fill(node: Node | None, text: str, *, name: str = "Type") -> Action:
    """Type, search or select; scroll down when the element is not visible."""
    if node is None:
        return Action(name="Scroll Down")
    return Action(name=name, element=node.id, argument=text)


def answer(text: str) -> Action:
    """End with an answer."""
    return Action(name="exit", argument=text)


DONE = answer("done")
"""How a demonstrator ends when no answer is asked."""
UNABLE = "N/A"
"""The answer to an impossible task."""
