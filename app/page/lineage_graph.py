"""The graph of a lineage as SVG: what a thing came from to its left, what came of it to its right. Pure.

A box is a thing, or all things in one relation where there are more than `MOST_SINGLE` of them. A thing that has several
relations to others of one column is drawn once.
"""

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote

import msgspec
from markupsafe import Markup

from hindcast.core.text.counts import count_of
from hindcast.storage.readmodel.lineage.graph import Branch, Lineage, Node

WIDE, TALL = 132, 38
"""Size of a box in pixels."""
ACROSS, DOWN = 32, 8
"""Gaps between boxes in pixels."""
MOST_SINGLE = 2
"""Most things in one relation that have boxes of their own."""
MIDDLE = 23
"""Baseline of a line that is alone in its box."""
MOST_LETTERS, MOST_SMALL_LETTERS = 16, 24
"""Most letters of a thing's name and of its relation in a box."""
EDGE = 1
"""Pixels around the graph, for the strokes of boxes at its edge."""
LINKED = ("step", "episode", "batch", "update", "task", "policy")
"""Kinds that have a lineage page."""
SIGNS = {"success": "✓", "failure": "✗", "undecided": "?", "unjudged": "·"}


class Content(NamedTuple):
    """What a box shows."""

    text: str
    title: str
    path: str
    """Below the run's address; empty: it has no page."""


class Box(msgspec.Struct, kw_only=True):
    """A box of the graph."""

    column: int
    """0: the thing itself; negative: what it came from."""
    relation: str
    content: Content
    row: float = 0.0
    parents: list["Box"] = []
    """Boxes nearer to the thing itself, to which lines lead."""


class Graph:
    """Places the boxes of one lineage: ends of branches in rows of their own, others in the middle of what they lead to."""

    def __init__(self, lineage: Lineage) -> None:
        self.thing = Box(column=0, relation="", content=_of_thing(lineage.kind, lineage.id))
        self.boxes = [self.thing]
        heights = [self._side(node, way) for node, way in ((lineage.backward, -1), (lineage.forward, 1))]
        self.rows = max(1.0, *heights)
        for way, height in zip((-1, 1), heights, strict=True):
            for box in self.boxes:
                if box.column * way > 0:
                    box.row += (self.rows - height) / 2
        self.thing.row = (self.rows - 1) / 2

    def _side(self, node: Node | None, way: int) -> float:
        """Place everything on one side; returns its number of rows."""
        self._free = 0.0
        if node is not None:
            self._known: dict[tuple[int, str], Box] = {}
            self._place(node.branches, self.thing, way)
        return self._free

    def _place(self, branches: Sequence[Branch], parent: Box, way: int) -> list[Box]:
        """Place the entries of a thing's branches; returns the new boxes."""
        placed: list[Box] = []
        for branch in branches:
            single = branch.nodes if branch.total == len(branch.nodes) <= MOST_SINGLE else []
            entries = [
                (branch.relation, _of_thing(node.kind, node.id), node.branches) for node in single
            ] or [(*_summed(branch), [])]
            for relation, content, further in entries:
                column = parent.column + way
                known = self._known.get((column, content.title)) if single else None
                if known is not None:
                    known.parents.append(parent)
                    continue
                box = Box(column=column, relation=relation, parents=[parent], content=content)
                self._known[column, content.title] = box
                self.boxes.append(box)
                placed.append(box)
                children = self._place(further, box, way)
                if children:
                    box.row = (children[0].row + children[-1].row) / 2
                else:
                    box.row = self._free
                    self._free += 1
        return placed


def _of_thing(kind: str, name: str) -> Content:
    text = name if kind in ("episode", "task", "step") else f"{kind} {name.rpartition('/')[2]}"
    path = f"lineage/{kind}/{name}" if kind in LINKED else ""
    return Content(text, f"{kind} {name}", path)


def _summed(branch: Branch) -> tuple[str, Content]:
    """Relation of all things in one branch with their number, and their counts by outcome."""
    counts = " ".join(f"{SIGNS[name]} {count}" for name, count in branch.counts.items() if count)
    number = count_of(branch.total, branch.kind)
    relation = f"{branch.relation} {number}" if counts else branch.relation
    return relation, Content(counts or number, counts or number, "")


def lineage_graph(lineage: Lineage, *, base: str, as_of: int | None) -> Markup:
    """The picture; `base` is the run's address, `as_of` is added to every link."""
    graph = Graph(lineage)
    first, last = (choose(box.column for box in graph.boxes) for choose in (min, max))
    width = (last - first) * (WIDE + ACROSS) + WIDE + 2 * EDGE
    height = graph.rows * (TALL + DOWN)

    def corner(box: Box) -> tuple[float, float]:
        return (box.column - first) * (WIDE + ACROSS) + EDGE, box.row * (TALL + DOWN) + DOWN / 2

    parts = list[Markup]()
    for box in graph.boxes:
        for parent in box.parents:
            (left, right) = (box, parent) if box.column < parent.column else (parent, box)
            (x1, y1), (x2, y2) = corner(left), corner(right)
            x1, middle = x1 + WIDE, (x1 + WIDE + x2) / 2
            y1, y2 = y1 + TALL / 2, y2 + TALL / 2
            parts.append(
                Markup('<path d="M{} {}C{} {} {} {} {} {}"/>').format(x1, y1, middle, y1, middle, y2, x2, y2)
            )
    for box in graph.boxes:
        x, y = corner(box)
        drawn = Markup(
            '<title>{}</title><rect x="{}" y="{}" width="{}" height="{}" rx="4"/>'
            '<text class="relation" x="{}" y="{}">{}</text><text x="{}" y="{}">{}</text>'
        ).format(
            f"{box.relation} {box.content.title}".strip(),
            x,
            y,
            WIDE,
            TALL,
            x + 7,
            y + 14,
            _short(box.relation, MOST_SMALL_LETTERS),
            x + 7,
            y + (30 if box.relation else MIDDLE),
            _short(box.content.text, MOST_LETTERS),
        )
        if box.content.path:
            address = quote(f"{base}/{box.content.path}") + (f"?as_of={as_of}" if as_of is not None else "")
            drawn = Markup('<a href="{}">{}</a>').format(address, drawn)
        parts.append(Markup('<g class="{}">{}</g>').format("thing" if box is graph.thing else "", drawn))
    return Markup(
        '<svg class="graph" width="{}" height="{}" role="group" aria-label="Lineage as a graph">{}</svg>'
    ).format(width, round(height), Markup("").join(parts))


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
