"""Drawings of recorded pages, for steps without a screenshot.

A step records the visible parts of its page in document order, without their places in the window. A drawing shows these
parts as what they are: headings, texts, buttons, fields. It cannot show colors, sizes, or what stood next to what.
"""

from collections import Counter
from itertools import groupby

import msgspec

from hindcast.core.domain.observation import Node, Page

IN_ONE_ROW = frozenset(("link", "button", "checkbox", "radio", "image", "clickable"))
"""Kinds that are drawn next to each other; every other part has a row of its own."""
DEEPEST = 6
"""Deepest indentation; deeper parts are indented as much."""


class DrawnPart(msgspec.Struct, frozen=True, kw_only=True):
    """One part of the page."""

    node: Node
    touched: bool
    """Whether the step acted on it."""
    changed: bool
    """Whether the page before had no such part: it appeared, or its text, value or state changed."""


class DrawnRow(msgspec.Struct, frozen=True, kw_only=True):
    """Parts that are drawn next to each other."""

    depth: int
    """Indentation, from 0 to `DEEPEST`."""
    parts: tuple[DrawnPart, ...]


class PageDrawing(msgspec.Struct, frozen=True, kw_only=True):
    """A page, part by part."""

    title: str
    rows: tuple[DrawnRow, ...]
    changed: int | None
    """Number of changed parts; None: it was compared with no page before."""
    truncated: bool
    """Whether the recorded page lacks parts, because it had too many."""


def draw_page(page: Page, *, touched: int | None, before: Page | None) -> PageDrawing:
    """Draw a page. `touched`: number of the element that the step acted on; `before`: the page of the step before."""
    known = Counter(map(_content, () if before is None else before.nodes))
    parts = []
    for node in page.nodes:
        changed = before is not None and not known[_content(node)]
        known[_content(node)] -= 1
        parts.append(
            DrawnPart(node=node, touched=node.id is not None and node.id == touched, changed=changed)
        )
    shallowest = min((node.depth for node in page.nodes), default=0)
    rows = []
    for (depth, _), together in groupby(enumerate(parts), key=_row):
        row = tuple(part for _, part in together)
        rows.append(DrawnRow(depth=min(depth - shallowest, DEEPEST), parts=row))
    return PageDrawing(
        title=page.title,
        rows=tuple(rows),
        changed=None if before is None else sum(part.changed for part in parts),
        truncated=page.truncated,
    )


def _row(placed: tuple[int, DrawnPart]) -> tuple[int, int | None]:
    """What parts of one row have in common: their depth, and their place where they stand alone."""
    place, part = placed
    return part.node.depth, None if part.node.kind in IN_ONE_ROW else place


def _content(node: Node) -> tuple[object, ...]:
    """What a reader sees of a part; its number may change without it."""
    return node.kind, node.text, node.value, node.checked, node.options, node.disabled
