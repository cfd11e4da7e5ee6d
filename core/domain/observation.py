"""Observations: a page as an ordered list of visible nodes, some of which can be acted upon, and their places in the window.

The snapshot script makes a page in one round trip; renderers (`core.prompts.rendering`) turn it into text. Page text is
data, never instructions.
"""

import msgspec

KINDS = (
    "text",
    "heading",
    "link",
    "button",
    "input",
    "textarea",
    "select",
    "checkbox",
    "radio",
    "image",
    "clickable",
)
"""Kinds of nodes, in the order of their tokens in the base policy's tokenizer: append new ones at the end."""


class Node(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One visible part of a page."""

    kind: str
    """One of `KINDS`."""
    tag: str
    """HTML tag in lower case."""
    text: str = ""
    """Own visible text or accessible name, capped in length."""
    id: int | None = None
    """Number by which an action refers to the node; None if no action can."""
    value: str | None = None
    """Current value of an input, textarea or select."""
    checked: bool | None = None
    """State of a checkbox or radio button."""
    options: tuple[str, ...] = ()
    """Labels of a select's options."""
    disabled: bool = False
    """Whether the page refuses input."""
    attributes: dict[str, str] = {}
    """Further attributes to show (placeholder, aria-label, alt, type, role), capped in length."""
    depth: int = 0
    """Nesting depth among the kept nodes, for renderers that indent."""


class Element(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One element of a page's outline: the tree of nested elements that WebRL's published checkpoints read."""

    tag: str
    """HTML tag in lower case."""
    depth: int = 0
    """Number of outline elements that enclose it."""
    id: int | None = None
    """Number of its node, if an action can refer to it."""
    text: str = ""
    """Own text before the first child."""
    attributes: dict[str, str] = {}
    """Non-empty attributes that the published code shows, including `data-bbox` (x, y, width, height)."""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A page reduced to its visible nodes."""

    url: str
    title: str
    nodes: tuple[Node, ...]
    """In document order."""
    ordinal: int = 0
    """Number of facts that the site has recorded in the episode's session (`<meta name="world-ordinal">`); 0 if unknown."""
    truncated: bool = False
    """Whether the snapshot's cap dropped nodes."""
    outline: tuple[Element, ...] | msgspec.UnsetType = msgspec.UNSET
    """Elements in document order, for renderers that show them (`Renderer.needs_outline`). For other renderers it
    is unset, and absent from the page's encoding."""


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """What the policy sees at one step: the page and the open tabs."""

    page: Page
    digest: str
    """sha256 of the page's canonical encoding without host and port: equal pages have equal digests on every machine."""
    tabs: tuple[str, ...] = ()
    """Titles of the open tabs."""
    active_tab: int = 0
    """Index of the active tab in `tabs`."""


class Box(msgspec.Struct, frozen=True):
    """A rectangle of a browser window, in whole CSS pixels from its upper left corner."""

    x: int
    y: int
    width: int
    height: int


class Mark(msgspec.Struct, frozen=True):
    """The position of an element that can be acted upon."""

    element: int
    """Its number on the page (`Node.id`)."""
    box: Box
    """Its visible part."""
