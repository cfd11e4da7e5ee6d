"""The renderer `webrl/3`: a page as WebRL's published code shows it to its checkpoints, nested elements on one line.

    <html data-bbox="0,0,1280,720"> <a id="7" data-text="Reports" data-bbox="22,484,44,13"> Reports </a> </html>

Format, attributes, their order and caps are those of THUDM/VisualAgentBench, VAB-WebArena-Lite (`html_tools`: the prompt
`xml` and `basic_attrs`), which WebRL's evaluation runs; the snapshot selects the elements (outline.js). That code writes
texts unescaped. Here two things differ, because a page could forge elements by them: `<` before a possible tag or role mark
becomes `&lt;`, and quotation marks in a value with an equals sign become `&quot;`.
"""

import re
from collections.abc import Iterator

import msgspec

from hindcast.core.domain.observation import Element, Page
from hindcast.core.prompts.rendering import Renderer
from hindcast.core.prompts.rendering.neutral import neutralised
from hindcast.core.prompts.rendering.webrl import render_webrl

ATTRIBUTES = (
    "title",
    "value",
    "type",
    "placeholder",
    "selected",
    "data-value",
    "data-text",
    "data-testid",
    "data-label",
    "data-bbox",
    "data-status",
)
"""Attributes of an element, in the order shown. A value already shown under another name is not repeated."""
MAX_TEXT = 500
"""Most characters of a text or value."""

_OPENS = re.compile(r"<(?=[A-Za-z/!?|])")
_BREAKS = re.compile(r"[^\S\xa0]+")


def render_outline(page: Page) -> str:
    """Render the page's outline as nested elements; a page without an outline is rendered by `webrl/2`."""
    if page.outline is msgspec.UNSET:
        return render_webrl(neutralised(page))
    return " ".join(_parts(page.outline))


def _parts(outline: tuple[Element, ...]) -> Iterator[str]:
    """Yield opening and closing tags in document order."""
    open_elements: list[Element] = []
    for element in outline:
        while open_elements and open_elements[-1].depth >= element.depth:
            yield f"</{open_elements.pop().tag}>"
        open_elements.append(element)
        yield _opening(element)
    while open_elements:
        yield f"</{open_elements.pop().tag}>"


def _opening(element: Element) -> str:
    attributes = [] if element.id is None else [f'id="{element.id}"']
    seen_values: set[str] = set()
    for name in ATTRIBUTES:
        value = _plain(element.attributes.get(name, ""))
        if value and value not in seen_values:
            seen_values.add(value)
            quoted = value.replace('"', "&quot;") if "=" in value else value
            attributes.append(f'{name}="{quoted}"')
    text = _plain(element.text)
    return f"<{' '.join([element.tag, *attributes])}>{f' {text}' if text else ''}"


def _plain(text: str) -> str:
    """Put a text on one line; a no-break space is kept, as in the published code."""
    return _OPENS.sub("&lt;", _BREAKS.sub(" ", text).strip()[:MAX_TEXT])


WEBRL_3 = Renderer(render=render_outline, needs_outline=True, keeps_role_marks_out=True)
