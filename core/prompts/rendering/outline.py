"""`webrl/3`: a page as WebRL's published code shows it to its checkpoints: a tree of nested elements on one line.

    <html data-bbox="0,0,1280,720"> <a id="7" data-text="Reports" data-bbox="22,484,44,13"> Reports </a> </html>

Format, attributes, their order and caps are those of THUDM/VisualAgentBench, VAB-WebArena-Lite (`html_tools`: the prompt
`xml` and `basic_attrs`), which WebRL's evaluation runs; which elements there are is the snapshot's to find (outline.js).
That code writes texts as they are. Here two things are changed, because a page could pass for other elements by them: `<`
before what could be a tag or a role mark becomes `&lt;`, and quotation marks become `&quot;` in a value that has an equals
sign, too.
"""

import re
from collections.abc import Iterator

import msgspec

from hindcast.core.domain.observation import Element, Page
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
"""What is shown of an element, in this order; a value that was shown under another name already is not repeated."""
MAX_TEXT = 500
"""Characters of a text or of a value."""

_OPENS = re.compile(r"<(?=[A-Za-z/!?|])")
_BREAKS = re.compile(r"[^\S\xa0]+")


def render_outline(page: Page) -> str:
    """The page's outline as nested elements; a page that was taken without one as `webrl/2` shows it."""
    if page.outline is msgspec.UNSET:
        return render_webrl(neutralised(page))
    return " ".join(_parts(page.outline))


def _parts(outline: tuple[Element, ...]) -> Iterator[str]:
    """What an element begins with, in document order, and what closes it once no deeper one follows."""
    opened: list[Element] = []
    for element in outline:
        while opened and opened[-1].depth >= element.depth:
            yield f"</{opened.pop().tag}>"
        opened.append(element)
        yield _opening(element)
    while opened:
        yield f"</{opened.pop().tag}>"


def _opening(element: Element) -> str:
    shown = [] if element.id is None else [f'id="{element.id}"']
    said: set[str] = set()
    for name in ATTRIBUTES:
        value = _plain(element.attributes.get(name, ""))
        if value and value not in said:
            said.add(value)
            quoted = value.replace('"', "&quot;") if "=" in value else value
            shown.append(f'{name}="{quoted}"')
    text = _plain(element.text)
    return f"<{' '.join([element.tag, *shown])}>{f' {text}' if text else ''}"


def _plain(text: str) -> str:
    """One line, with no break of any kind in it; a no-break space is kept, as it is in the published code."""
    return _OPENS.sub("&lt;", _BREAKS.sub(" ", text).strip()[:MAX_TEXT])
