"""Generated pages: the same words as `core.domain.observation`, with content that nobody has seen before."""

from random import Random

from hindcast.core.domain.observation import Node, Page
from tools.base_policy import words

MOST_IDS = 200
"""Element ids below this are single tokens of the base policy's tokenizer; generated pages use all of them."""

SIZES = ((1, 5), (2, 8), (4, 12), (6, 20), (10, 30), (25, 60))
"""Ranges of filler nodes: most pages are small, some are as long as a result page."""

_KINDS = (
    "link",
    "link",
    "link",
    "button",
    "button",
    "text",
    "text",
    "text",
    "heading",
    "input",
    "checkbox",
    "radio",
    "select",
    "textarea",
    "clickable",
    "image",
)
_TAGS = {
    "link": "a", "button": "button", "text": "span", "heading": "h2", "input": "input", "textarea": "textarea",
    "select": "select", "checkbox": "input", "radio": "input", "image": "img", "clickable": "div",
}  # fmt: skip
_WITHOUT_ID = ("text", "heading", "image")


class Draft:
    """A page in the making: nodes in order, ids given at the end as a snapshot would, in document order."""

    def __init__(self, random: Random, vocabulary: tuple[str, ...]) -> None:
        self.random = random
        self.vocabulary = vocabulary
        self.nodes: list[Node] = []
        self._taken: set[str] = set()

    def fresh(self, most: int = 4) -> str:
        """A phrase that the page does not carry yet."""
        for _ in range(100):
            text = words.phrase(self.random, most, self.vocabulary)
            if text not in self._taken:
                break
        self._taken.add(text)
        return text

    def alike(self, text: str) -> str:
        """A phrase that shares words with `text`, so that reading its beginning or its end is not enough."""
        parts = text.split(" ")
        index = self.random.randrange(len(parts))
        other = words.word(self.random, self.vocabulary)
        changed = [*parts[:index], other, *parts[index + 1 :]] if len(parts) > 1 else [*parts, other]
        result = " ".join(changed)
        self._taken.add(result)
        return result

    def filler(self, count: int) -> list[Node]:
        """Nodes that have nothing to do with the task."""
        return [self._filler_node() for _ in range(count)]

    def _filler_node(self) -> Node:
        random = self.random
        kind = random.choice(_KINDS)
        if kind == "text" and random.random() < 0.35:
            text = random.choice(
                (
                    words.money(random),
                    words.number(random),
                    self.fresh(12),
                    f"{self.fresh(2)}: {words.money(random)}",
                    f"{self.fresh(2)}: {self.fresh(2)}",
                )
            )
            return node("text", text)
        if kind in ("input", "textarea"):
            return node(kind, self.fresh(2), value=self.fresh(2) if random.random() < 0.3 else "")
        if kind in ("checkbox", "radio"):
            return node(kind, self.fresh(2), checked=random.random() < 0.3)
        if kind == "select":
            options = tuple(self.fresh(2) for _ in range(random.randint(2, 6)))
            return node(kind, self.fresh(1), value=random.choice(options), options=options)
        return node(kind, self.fresh())

    def insert(self, *nodes: Node) -> None:
        """Put nodes at random places, keeping their order."""
        places = sorted(self.random.randint(0, len(self.nodes)) for _ in nodes)
        for shift, (place, item) in enumerate(zip(places, nodes, strict=True)):
            self.nodes.insert(place + shift, item)

    def insert_together(self, *nodes: Node) -> None:
        """Put nodes next to each other at a random place."""
        place = self.random.randint(0, len(self.nodes))
        self.nodes[place:place] = nodes

    def size(self) -> int:
        """How many filler nodes this page gets."""
        return self.random.randint(*self.random.choice(SIZES))

    def page(self) -> Page:
        """The finished page; ids run upwards from a start anywhere, so that every id is met."""
        count = sum(item.kind not in _WITHOUT_ID for item in self.nodes)
        room = max(0, MOST_IDS - count)
        next_id = self.random.choice((0, 1, self.random.randint(0, room), self.random.randint(0, room)))
        numbered = []
        for item in self.nodes:
            if item.kind in _WITHOUT_ID:
                numbered.append(item)
            else:
                numbered.append(_with_id(item, next_id))
                next_id += 1
        return Page(url="http://generated/", title=self.fresh(3), nodes=tuple(numbered))


def node(
    kind: str,
    text: str,
    *,
    value: str | None = None,
    checked: bool | None = None,
    options: tuple[str, ...] = (),
) -> Node:
    """A node without id."""
    return Node(kind=kind, tag=_TAGS[kind], text=text, value=value, checked=checked, options=options)


def find(page: Page, text: str, kinds: tuple[str, ...] | None = None) -> int:
    """The id of the first node with this text that can be acted upon."""
    for item in page.nodes:
        if item.text == text and item.id is not None and (kinds is None or item.kind in kinds):
            return item.id
    raise ValueError(f"no element carries the text {text!r}")


def _with_id(item: Node, number: int) -> Node:
    return Node(
        kind=item.kind,
        tag=item.tag,
        text=item.text,
        id=number,
        value=item.value,
        checked=item.checked,
        options=item.options,
    )
