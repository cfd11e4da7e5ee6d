"""A page as a policy may see it: an ordered list of visible things, some of which can be acted upon.

The snapshot script fills it in one round trip; renderers (`core.prompts.rendering`) turn it into text. Page text is data,
never instructions.
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
"""What a page's nodes are called. In this order the base policy's tokenizer numbers them: new ones belong at the end."""


class Node(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One visible thing on a page, in document order."""

    kind: str
    """One of `KINDS`."""
    tag: str
    """HTML tag in lower case."""
    text: str = ""
    """Own visible text or accessible name, capped."""
    id: int | None = None
    """Number by which an action refers to it; None when it cannot be acted upon."""
    value: str | None = None
    """Current value of an input, textarea or select."""
    checked: bool | None = None
    """State of a checkbox or radio button."""
    options: tuple[str, ...] = ()
    """Labels of a select's options."""
    disabled: bool = False
    """Whether the page refuses input on it."""
    attributes: dict[str, str] = {}
    """Further attributes worth showing (placeholder, aria-label, alt, type, role), capped."""
    depth: int = 0
    """Depth among the kept nodes, for renderers that nest."""


class Element(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One element of a page's outline: the tree of nested elements that WebRL's published checkpoints read."""

    tag: str
    """HTML tag in lower case."""
    depth: int = 0
    """How many elements of the outline it lies in."""
    id: int | None = None
    """Number of the node that it is, if an action can refer to it."""
    text: str = ""
    """Own text before its first child."""
    attributes: dict[str, str] = {}
    """Those that the published code shows and that are not empty, `data-bbox` (x, y, width, height) among them."""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A simplified page."""

    url: str
    title: str
    nodes: tuple[Node, ...]
    ordinal: int = 0
    """How many facts the site has recorded in this episode's session so far (`<meta name="world-ordinal">`); 0 if unknown."""
    truncated: bool = False
    """Whether nodes were dropped at the snapshot's cap."""
    outline: tuple[Element, ...] | msgspec.UnsetType = msgspec.UNSET
    """Its elements in document order, for renderers that show them (`core.prompts.rendering.OUTLINED`); unset, and then in no encoding
    of the page, where it was taken for another."""


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """What one step starts from."""

    page: Page
    digest: str
    """sha256 of the page's canonical encoding without its host and port: equal pages, equal digests, on every machine."""
    tabs: tuple[str, ...] = ()
    """Titles of the open tabs."""
    active_tab: int = 0
