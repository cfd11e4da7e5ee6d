"""Converts BrowserGym's accessibility tree to a page. Pure: equal trees give equal pages."""

from hindcast.actors.environments.browsergym.child import DriverReply, SeenNode
from hindcast.actors.environments.snapshot import LIMITS
from hindcast.core.domain.observation import Node, Page

KINDS = {
    "link": "link",
    "button": "button",
    "checkbox": "checkbox",
    "switch": "checkbox",
    "radio": "radio",
    "textbox": "input",
    "searchbox": "input",
    "spinbutton": "input",
    "combobox": "select",
    "heading": "heading",
    "image": "image",
    "img": "image",
    "StaticText": "text",
}
"""Role -> kind; other roles are `clickable` if they can be acted upon, else `text`."""
TAGS = {"link": "a", "button": "button", "heading": "h", "image": "img", "text": "p", "clickable": "div"}


def page_of(seen: DriverReply) -> tuple[Page, dict[int, str]]:
    """Return the page, and the `bid` of each of its numbers."""
    nodes: list[Node] = []
    bids: dict[int, str] = {}
    spoken: tuple[str, ...] = ()
    for one in seen.nodes:
        if len(nodes) == LIMITS["nodes"]:
            break
        if one.role == "StaticText" and one.name in spoken:
            continue  # the text of a link, button or field appears below it again
        number = len(bids) + 1 if one.acts and one.bid and not one.disabled else None
        if number is not None and one.bid:
            bids[number] = one.bid
        nodes.append(_node(one, number))
        spoken = (one.name, str(one.value))
    title = seen.tabs[seen.active] if 0 <= seen.active < len(seen.tabs) else ""
    page = Page(
        url=seen.url,
        title=_cut(title),
        nodes=tuple(nodes),
        truncated=len(seen.nodes) > LIMITS["nodes"],
    )
    return page, bids


def _node(one: SeenNode, number: int | None) -> Node:
    kind = KINDS.get(one.role, "clickable" if one.acts else "text")
    field = kind in ("input", "select")
    return Node(
        kind=kind,
        tag=TAGS.get(kind, kind if kind == "select" else "input"),
        text=_cut(one.name),
        id=number,
        value=_cut("" if one.value is None else str(one.value)) if field else None,
        checked=str(one.checked).lower() == "true" if kind in ("checkbox", "radio") else None,
        disabled=one.disabled,
        depth=one.depth,
    )


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LIMITS["text"] else text[: LIMITS["text"] - 1] + "…"
