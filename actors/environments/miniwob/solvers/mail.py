"""The inbox: find an email by its sender, open it, do what is asked."""

import re
from collections.abc import Sequence

from hindcast.actors.environments.miniwob.solvers.page_queries import (
    Solve,
    between,
    click,
    enter,
    find,
    first,
    hint,
    hinted,
    live,
    quoted,
)
from hindcast.core.domain.action import Action
from hindcast.core.domain.observation import Page


def _icon_of(page: Page, sender: str, icon: str) -> Action | None:
    """A click on the icon in the sender's line of the list, if it is shown."""
    nodes = live(page)
    at = next((index for index, node in enumerate(nodes) if node.text == sender), None)
    for node in nodes[at + 1 : at + 5] if at is not None else ():
        if hint(node) == icon:
            return click(node)
    return None


def _open(page: Page, sender: str) -> Action:
    """Open the sender's email, through the search if it is further down."""
    shown = find(page, sender, "clickable") or first(
        node for node in live(page, "clickable") if node.text.startswith(f"{sender} ")
    )
    if shown is not None:
        return click(shown)
    search = hinted(page, "open-search")
    return click(search) if search is not None else enter(first(live(page, "input")), sender)


def _mail(sender: str, task: str, text: str, page: Page) -> Action:
    reply, forward = hinted(page, "send-reply"), hinted(page, "send-forward")
    if reply is not None:
        area = first(live(page, "textarea"))
        return click(reply) if area is not None and area.value == text else enter(area, text)
    if forward is not None:
        field = first(live(page, "input"))
        return click(forward) if field is not None and field.value == text else enter(field, text)
    button = find(page, "Reply", "clickable")
    if button is None:
        return _icon_of(page, sender, task) or _open(page, sender)
    if task in ("trash", "star"):
        return click(hinted(page, task))
    return click(button if task == "reply" else find(page, "Forward", "clickable"))


def _inbox(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    sender = re.search(r"email by (\S+) and", instruction)
    if sender is None:
        return click(None)
    if "trash" in instruction or "star icon" in instruction:
        return _mail(sender.group(1), "trash" if "trash" in instruction else "star", "", page)
    if "reply" in instruction:
        return _mail(sender.group(1), "reply", quoted(instruction)[0], page)
    return _mail(sender.group(1), "forward", between(instruction, "that email to ", "."), page)


_NAME = r"([A-Z][\w-]+)"
_SENDER = re.compile(rf"(?:from|by) {_NAME}|{_NAME} (?:sent|wants his)")
_RECEIVER = re.compile(rf"(?:to|Send|Forward|Give) {_NAME}|^{_NAME} (?:wants the|is waiting)")


def _worded_forward(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """Parse the many wordings of whose email is forwarded to whom."""
    sender, receiver = _SENDER.search(instruction), _RECEIVER.search(instruction)
    if sender is None or receiver is None:
        return click(None)
    return _mail(sender.group(1) or sender.group(2), "forward", receiver.group(1) or receiver.group(2), page)


SOLUTIONS: dict[str, Solve] = {
    "email-inbox": _inbox,
    "email-inbox-delete": _inbox,
    "email-inbox-forward": _inbox,
    "email-inbox-forward-nl": _worded_forward,
    "email-inbox-important": _inbox,
    "email-inbox-noscroll": _inbox,
    "email-inbox-reply": _inbox,
    "email-inbox-star-reply": _inbox,
}
"""Solutions by family."""
