"""Reads a live page into `core.domain.observation.Page` with one injected script and one round trip (snapshot.js).

The script numbers the elements that can be acted upon and remembers them inside the document. So an action on `[7]`
reaches exactly the element that was shown as 7, or finds it gone.
"""

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import msgspec
from playwright.async_api import Page as BrowserPage

from hindcast.core.domain.observation import KINDS, Node, Observation, Page
from hindcast.core.errors import EnvironmentFailed
from hindcast.core.ids import digest_hex
from hindcast.core.structs import decode_json


def script(name: str) -> str:
    """Text of a script in this module's folder."""
    return script_beside(__file__, name)


def script_beside(module: str, name: str) -> str:
    """Text of a script in a module's folder; `module` is its `__file__`."""
    return (Path(module).parent / name).read_text(encoding="utf-8")


_NOTES = 'window[Symbol.for("hindcast.notes")]'
_TAKE_JS = f"""(limits) => {_NOTES} ? {_NOTES}.snapshot(limits)
  : JSON.stringify({{ opened: 0, page: {{ url: location.href, title: document.title, nodes: [] }} }})"""
"""An error page of the browser carries no script: it is read as an empty page with its address."""
ENDED_JS = f"() => Boolean({_NOTES}?.ended())"
"""Asks a page whether it has ended the episode; a snapshot contains the answer too."""
ACT_JS = f'(asked) => {_NOTES} ? {_NOTES}.act(asked) : {{ state: "unknown" }}'
"""Asks a page what an action on a numbered element needs: act.js."""

BOXES_JS = f'() => {_NOTES} ? {_NOTES}.boxes() : "[]"'
"""Asks a page where the numbered elements are now: boxes.js."""

LIMITS: dict[str, Any] = {
    "nodes": 400,
    "text": 200,
    "attribute": 60,
    "options": 60,
    "elements": 50_000,
    "depth": 1000,
    "part": 20_000,
    "value": 500,
    "outlined": 100_000,
}
"""Limits on nodes of a page, characters of a text, characters of an attribute or option, options of a select. Limits on
the search for them: elements, nesting depth (a parser nests 512, scripts any number, and the walk has a stack),
characters of one text. Limits on an outline: characters of a text or value, and of the whole. A page that is cut is
marked `truncated`.
"""
MAX_SNAPSHOT_CHARS = 1_000_000
"""A larger snapshot is refused: the limits above make it impossible for an honest page."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Result of the snapshot script."""

    page: Page | None
    """None while the document is about to be replaced: wait for the navigation and try again."""
    opened: int = 0
    """New tabs that the page has asked for since the last snapshot."""
    ended: bool = False
    """Whether the page says that it has ended the episode."""


def page_script(ended: str = "") -> str:
    """Init script of every document: takes notes from the start and carries the scripts that are called later.

    They stay in the document, so that a call sends one line and not their text. `ended` is the site's own expression for
    "the episode is over".
    """
    return f"""{script("hooks.js")}
(() => {{
  const notes = {_NOTES};
  const carried = {{
    snapshot: {script("snapshot.js")},
    outline: {script("outline.js")},
    act: {script("act.js")},
    boxes: {script("boxes.js")},
    ended: () => {{ try {{ return Boolean({ended or "false"}); }} catch {{ return false; }} }},
  }};
  for (const [name, value] of Object.entries(carried)) {{
    if (!(name in notes)) Object.defineProperty(notes, name, {{ value }});
  }}
}})();"""


def plain_address(url: str) -> str:
    """The address without scheme, host and port, and for a local file without its folder.

    >>> plain_address("http://127.0.0.1:4711/cart?id=3")
    '/cart?id=3'
    """
    address = urlsplit(url)
    if address.scheme == "file":
        return urlunsplit(("", "", "/" + address.path.rsplit("/", 1)[-1], address.query, address.fragment))
    if address.scheme not in ("http", "https"):
        return url
    return urlunsplit(("", "", address.path, address.query, address.fragment))


def page_digest(page: Page) -> str:
    """sha256 of the page's canonical encoding, its address reduced to `plain_address`."""
    body = msgspec.structs.replace(page, url=plain_address(page.url))
    return digest_hex(msgspec.msgpack.encode(body, order="sorted"))


def observe(page: Page, *, tabs: tuple[str, ...] = (), active_tab: int = 0) -> Observation:
    """A page with its digest and the open tabs."""
    return Observation(page=page, digest=page_digest(page), tabs=tabs, active_tab=active_tab)


async def take_snapshot(browser_page: BrowserPage, *, stay: bool = False, outline: bool = False) -> Snapshot:
    """Read the page once its DOM has been parsed. With `stay`, read at once, whatever is loading; with `outline`, read its
    outline too.

    The caller bounds the wait. Raises EnvironmentFailed when the result is no page, and Playwright's errors when the
    document or the tab goes away meanwhile.
    """
    return decode_snapshot(
        await browser_page.evaluate(_TAKE_JS, {**LIMITS, "stay": stay, "outline": outline})
    )


def decode_snapshot(result: object) -> Snapshot:
    """Parse and check the script's result; a page may have tampered with it."""
    if not isinstance(result, str) or len(result) > MAX_SNAPSHOT_CHARS:
        raise EnvironmentFailed(
            f"The page answered its snapshot with {type(result).__name__} instead of a page description. "
            "It overrides JSON or Promise in a way that snapshots cannot work with."
        )
    try:
        snapshot = decode_json(result, Snapshot)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise EnvironmentFailed(f"The page's snapshot does not decode: {error}.") from error
    if snapshot.page is not None:
        wrong = next((forgery for node in snapshot.page.nodes if (forgery := _why_forged(node))), "")
        ids = [node.id for node in snapshot.page.nodes if node.id is not None]
        wrong = wrong or _why_outline_forged(snapshot.page, len(ids))
        if wrong or ids != list(range(1, len(ids) + 1)):
            raise EnvironmentFailed(
                f"The page's snapshot was tampered with: {wrong or 'its numbers are'} wrong."
            )
    return snapshot


_TAG = re.compile(r"[^\s<>&\"']{1,200}")


def _why_outline_forged(page: Page, numbers: int) -> str:
    """As `_why_forged`, for the page's outline: its numbers are those of nodes, each once and in their order."""
    outline = () if page.outline is msgspec.UNSET else page.outline
    ids = [element.id for element in outline if element.id is not None]
    if ids != sorted(set(ids)) or not all(0 < number <= numbers for number in ids):
        return "the outline's numbers are"
    depths = [element.depth for element in outline]
    if any(
        not 0 <= depth <= parent_depth + 1 for parent_depth, depth in zip([-1, *depths], depths, strict=False)
    ):
        return "the outline's depth is"
    return next(("the outline's tag is" for element in outline if not _TAG.fullmatch(element.tag)), "")


def _why_forged(node: Node) -> str:
    """What of a node the script cannot have produced, so that the page forged it; empty: nothing."""
    if node.kind not in KINDS:
        return f"the kind {node.kind[:40]!r} is"
    if not _TAG.fullmatch(node.tag):
        return f"the tag {node.tag[:40]!r} is"
    if not 0 <= node.depth <= LIMITS["depth"] + 1:  # a renderer that indents would write as many blanks
        return "a depth is"
    return ""
