"""The pages of the MiniWoB++ package that are no family here, each with the reason.

`sight`: what tells right from wrong is drawn (colors, shapes, a canvas) and no text says it. `drag`: something is to
be held and moved. `point`: a place without an element is to be clicked. `selection`: a stretch of a text that takes no
input is to be marked. `motion`: what was read is over when the action arrives.
"""

from typing import Literal

import msgspec

from hindcast.actors.environments.miniwob.families import FAMILIES
from hindcast.core.text.nearest import nearest

Kind = Literal["sight", "drag", "point", "selection", "motion"]


class Unplayable(msgspec.Struct, frozen=True):
    """Why a page is no family."""

    kind: Kind
    reason: str


UNPLAYABLE: dict[str, Unplayable] = {
    "bisect-angle": Unplayable("point", "a point in an empty drawing is to be clicked"),
    "chase-circle": Unplayable("motion", "the pointer has to follow a moving circle"),
    "circle-center": Unplayable(
        "point", "the center of a drawn circle is to be clicked, which is no element"
    ),
    "click-color": Unplayable("sight", "the boxes differ in color alone"),
    "click-menu-2": Unplayable("sight", "half of its problems name the item by an icon that is only drawn"),
    "click-shades": Unplayable("sight", "the boxes differ in color alone"),
    "click-shape": Unplayable("sight", "the items differ in color, size and shape, which are only drawn"),
    "count-shape": Unplayable("sight", "the items differ in color, size and shape, which are only drawn"),
    "count-sides": Unplayable("sight", "the shape is drawn on a canvas"),
    "drag-box": Unplayable("drag", "a box is to be dragged into another"),
    "drag-circle": Unplayable("drag", "a circle is to be dragged"),
    "drag-cube": Unplayable("drag", "a cube is to be turned by dragging"),
    "drag-items": Unplayable("drag", "an entry of a list is to be dragged to another place"),
    "drag-items-grid": Unplayable("drag", "an entry of a grid is to be dragged to another place"),
    "drag-shapes": Unplayable("drag", "shapes are to be dragged into a box"),
    "drag-shapes-2": Unplayable("drag", "shapes are to be dragged into two boxes"),
    "drag-single-shape": Unplayable("drag", "a shape is to be dragged"),
    "drag-sort-numbers": Unplayable("drag", "entries of a list are to be dragged into their order"),
    "draw-circle": Unplayable("drag", "a circle is to be drawn with the pointer held down"),
    "draw-line": Unplayable("drag", "a line is to be drawn with the pointer held down"),
    "find-midpoint": Unplayable("point", "a point in an empty drawing is to be clicked"),
    "highlight-text": Unplayable("selection", "a paragraph is to be marked with the pointer held down"),
    "highlight-text-2": Unplayable(
        "selection", "one of three paragraphs is to be marked with the pointer held down"
    ),
    "hot-cold": Unplayable("point", "a hidden point is to be found by moving the pointer over an empty area"),
    "hover-shape": Unplayable(
        "motion", "the pointer has to stay on a square that changes its place; the page never rewards it"
    ),
    "identify-shape": Unplayable("sight", "the figure is only drawn"),
    "moving-items": Unplayable("motion", "circles that fly by are to be clicked"),
    "resize-textarea": Unplayable("drag", "the corner of a field is to be dragged"),
    "right-angle": Unplayable("point", "a point in an empty drawing is to be clicked"),
    "simon-says": Unplayable(
        "motion", "buttons light up one after the other, each for a quarter of a second"
    ),
    "stock-market": Unplayable(
        "motion", "the price changes ten times a second and is to be hit within ten seconds"
    ),
    "use-colorwheel-2": Unplayable("sight", "the color asked for is only drawn"),
    "visual-addition": Unplayable("sight", "the blocks to be counted are only drawn"),
}
"""By page name. Together with `families.FAMILIES` this is every page of the package's `miniwob` folder."""


def why_not(name: str) -> str:
    """The error for an unknown family, with what can be done."""
    known = UNPLAYABLE.get(name)
    if known is not None:
        return (
            f"MiniWoB++'s page {name!r} cannot be played here: {known.reason} ({known.kind}). "
            "docs/miniwob.md lists the families that can."
        )
    near = nearest(name, FAMILIES, most=3)
    return (
        f"MiniWoB++ has no page {name!r}{'; near it are ' + ', '.join(near) if near else ''}. "
        "docs/miniwob.md lists the families."
    )
