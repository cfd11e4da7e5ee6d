"""The playable MiniWoB++ families: every page of the package that the action table can operate by reading.

`UNPLAYABLE` lists the other pages, with the reason. `sight`: what tells right from wrong is drawn (colors, shapes, a canvas)
and no text says it. `drag`: something is to be held and moved. `point`: a place without an element is to be clicked.
`selection`: a stretch of a text that takes no input is to be marked. `motion`: what was read is over when the action
arrives. Names are the package's page names.
"""

from typing import Literal

import msgspec

from hindcast.core.text.nearest import nearest


class MiniwobFamily(msgspec.Struct, frozen=True, kw_only=True):
    """One page of MiniWoB++."""

    max_steps: int
    """About twice what the demonstrator needs on the hardest seeds."""
    reload: bool = False
    """Whether each episode loads the page again, because a restart in place keeps something of the last problem."""
    clock: bool = False
    """Whether what it shows or rewards depends on elapsed time: two runs of the same actions may differ."""
    fixed: bool = False
    """Whether every seed gives the same instruction and, as observed here, the same first page."""
    dated: bool = False
    """Whether it shows the day; every run has the same one (prepare.js), so it is repeatable."""


FAMILIES: dict[str, MiniwobFamily] = {
    "ascending-numbers": MiniwobFamily(max_steps=8, fixed=True),
    "book-flight": MiniwobFamily(max_steps=40, clock=True),
    "book-flight-nodelay": MiniwobFamily(max_steps=40),
    "button-delay": MiniwobFamily(max_steps=8, clock=True),
    "buy-ticket": MiniwobFamily(max_steps=3),
    "choose-date": MiniwobFamily(max_steps=30),
    "choose-date-easy": MiniwobFamily(max_steps=8),
    "choose-date-medium": MiniwobFamily(max_steps=12),
    "choose-date-nodelay": MiniwobFamily(max_steps=30),
    "choose-list": MiniwobFamily(max_steps=5),
    "click-button": MiniwobFamily(max_steps=3),
    "click-button-sequence": MiniwobFamily(max_steps=4, fixed=True),
    "click-checkboxes": MiniwobFamily(max_steps=14),
    "click-checkboxes-large": MiniwobFamily(max_steps=26),
    "click-checkboxes-soft": MiniwobFamily(max_steps=14),
    "click-checkboxes-transfer": MiniwobFamily(max_steps=14),
    "click-collapsible": MiniwobFamily(max_steps=5),
    "click-collapsible-2": MiniwobFamily(max_steps=8),
    "click-collapsible-2-nodelay": MiniwobFamily(max_steps=8),
    "click-collapsible-nodelay": MiniwobFamily(max_steps=5),
    "click-dialog": MiniwobFamily(max_steps=3),
    "click-dialog-2": MiniwobFamily(max_steps=3),
    "click-link": MiniwobFamily(max_steps=3),
    "click-menu": MiniwobFamily(max_steps=12),
    "click-option": MiniwobFamily(max_steps=5),
    "click-pie": MiniwobFamily(max_steps=5, reload=True, clock=True),
    "click-pie-nodelay": MiniwobFamily(max_steps=5, reload=True, clock=True),
    "click-scroll-list": MiniwobFamily(max_steps=6),
    "click-tab": MiniwobFamily(max_steps=3),
    "click-tab-2": MiniwobFamily(max_steps=8),
    "click-tab-2-easy": MiniwobFamily(max_steps=6),
    "click-tab-2-hard": MiniwobFamily(max_steps=14),
    "click-tab-2-medium": MiniwobFamily(max_steps=6),
    "click-test": MiniwobFamily(max_steps=2, fixed=True),
    "click-test-2": MiniwobFamily(max_steps=2, fixed=True),
    "click-test-transfer": MiniwobFamily(max_steps=2, fixed=True),
    "click-widget": MiniwobFamily(max_steps=3),
    "copy-paste": MiniwobFamily(max_steps=5),
    "copy-paste-2": MiniwobFamily(max_steps=5),
    "daily-calendar": MiniwobFamily(max_steps=24),
    "email-inbox": MiniwobFamily(max_steps=14),
    "email-inbox-delete": MiniwobFamily(max_steps=6),
    "email-inbox-forward": MiniwobFamily(max_steps=10),
    "email-inbox-forward-nl": MiniwobFamily(max_steps=10),
    "email-inbox-forward-nl-turk": MiniwobFamily(max_steps=14),
    "email-inbox-important": MiniwobFamily(max_steps=6),
    "email-inbox-nl-turk": MiniwobFamily(max_steps=14),
    "email-inbox-noscroll": MiniwobFamily(max_steps=10),
    "email-inbox-reply": MiniwobFamily(max_steps=10),
    "email-inbox-star-reply": MiniwobFamily(max_steps=10),
    "enter-date": MiniwobFamily(max_steps=5),
    "enter-password": MiniwobFamily(max_steps=6),
    "enter-text": MiniwobFamily(max_steps=5),
    "enter-text-2": MiniwobFamily(max_steps=5),
    "enter-text-dynamic": MiniwobFamily(max_steps=5),
    "enter-time": MiniwobFamily(max_steps=5),
    "find-greatest": MiniwobFamily(max_steps=5),
    "find-word": MiniwobFamily(max_steps=5),
    "focus-text": MiniwobFamily(max_steps=2, fixed=True),
    "focus-text-2": MiniwobFamily(max_steps=3),
    "form-sequence": MiniwobFamily(max_steps=24, reload=True),
    "form-sequence-2": MiniwobFamily(max_steps=8, reload=True),
    "form-sequence-3": MiniwobFamily(max_steps=14, reload=True),
    "generate-number": MiniwobFamily(max_steps=24),
    "grid-coordinate": MiniwobFamily(max_steps=3),
    "guess-number": MiniwobFamily(max_steps=16, fixed=True),
    "login-user": MiniwobFamily(max_steps=6),
    "login-user-popup": MiniwobFamily(max_steps=14),
    "multi-layouts": MiniwobFamily(max_steps=8),
    "multi-orderings": MiniwobFamily(max_steps=8),
    "navigate-tree": MiniwobFamily(max_steps=16),
    "number-checkboxes": MiniwobFamily(max_steps=40),
    "odd-or-even": MiniwobFamily(max_steps=8),
    "order-food": MiniwobFamily(max_steps=24),
    "phone-book": MiniwobFamily(max_steps=12),
    "read-table": MiniwobFamily(max_steps=5),
    "read-table-2": MiniwobFamily(max_steps=6),
    "scroll-text": MiniwobFamily(max_steps=24),
    "scroll-text-2": MiniwobFamily(max_steps=24),
    "search-engine": MiniwobFamily(max_steps=8),
    "sign-agreement": MiniwobFamily(max_steps=40),
    "simple-algebra": MiniwobFamily(max_steps=5),
    "simple-arithmetic": MiniwobFamily(max_steps=5),
    "social-media": MiniwobFamily(max_steps=20),
    "social-media-all": MiniwobFamily(max_steps=30),
    "social-media-some": MiniwobFamily(max_steps=24),
    "terminal": MiniwobFamily(max_steps=60, clock=True, dated=True),
    "text-editor": MiniwobFamily(max_steps=80, reload=True, clock=True),
    "text-transform": MiniwobFamily(max_steps=5),
    "tic-tac-toe": MiniwobFamily(max_steps=6),
    "unicode-test": MiniwobFamily(max_steps=3),
    "use-autocomplete": MiniwobFamily(max_steps=40, clock=True),
    "use-autocomplete-nodelay": MiniwobFamily(max_steps=40),
    "use-colorwheel": MiniwobFamily(max_steps=6, reload=True),
    "use-slider": MiniwobFamily(max_steps=50),
    "use-slider-2": MiniwobFamily(max_steps=60),
    "use-spinner": MiniwobFamily(max_steps=24),
}
"""Families by name."""

USUAL = (
    "click-test",
    "click-test-2",
    "click-button",
    "click-button-sequence",
    "click-link",
    "click-dialog",
    "click-dialog-2",
    "click-tab",
    "click-tab-2",
    "click-collapsible",
    "click-collapsible-2",
    "click-checkboxes",
    "click-option",
    "click-widget",
    "click-scroll-list",
    "choose-list",
    "focus-text",
    "focus-text-2",
    "enter-text",
    "enter-password",
    "login-user",
    "multi-layouts",
    "navigate-tree",
    "read-table",
    "search-engine",
)
"""Small tasks of reading and choosing: the base policy was trained on them, and runs draw from them by default."""


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
    unplayable = UNPLAYABLE.get(name)
    if unplayable is not None:
        return (
            f"MiniWoB++'s page {name!r} cannot be played here: {unplayable.reason} ({unplayable.kind}). "
            "docs/miniwob.md lists the families that can."
        )
    similar_names = nearest(name, FAMILIES, limit=3)
    return (
        f"MiniWoB++ has no page {name!r}{'; near it are ' + ', '.join(similar_names) if similar_names else ''}. "
        "docs/miniwob.md lists the families."
    )
