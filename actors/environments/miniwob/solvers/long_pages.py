"""Lists and texts that are longer than the window, and the inbox: act on what is shown, then scroll or search on."""

import re
from collections.abc import Sequence

from hindcast.actors.environments.miniwob.solvers.page_queries import (
    SCROLL_DOWN,
    SCROLL_UP,
    between,
    click,
    enter,
    find,
    first,
    hint,
    hinted,
    live,
    quoted,
    solves,
    submit,
)
from hindcast.core.domain.action import Action
from hindcast.core.domain.observation import Node, Page

_BUTTONS = ("Reply", "Retweet", "Like", "Share")
"""Buttons below every post, in this order; a pressed one has the class `active`."""


def _posts(page: Page) -> list[tuple[str, list[Node]]]:
    """Users with the buttons below their posts; a post whose user is scrolled away is left out."""
    posts: list[tuple[str, list[Node]]] = []
    for node in page.nodes:
        user = re.search(r"(?<!\S)@\S+", node.text) if node.kind == "text" else None
        if user:
            posts.append((user.group(), []))
        elif posts and node.id is not None and hint(node):
            posts[-1][1].append(node)
    return posts


@solves("social-media")
def _post(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """Press one button of one user's post, perhaps in the menu behind its dots."""
    user = between(instruction, "For the user ", ",")
    label = quoted(instruction)[0]
    entry = first(
        node for node in live(page, "clickable") if node.text == label or node.text == f"{label} {user}"
    )
    if entry is not None:
        return click(entry)
    if any(action.name == "Click" for action in earlier):  # the menu is open, the entry is further down
        return SCROLL_DOWN
    for name, buttons in _posts(page):
        if name == user and len(buttons) == 4:
            return click(buttons[_BUTTONS.index(label) if label in _BUTTONS[:3] else 3])
    return SCROLL_DOWN


def _press_posts(instruction: str, page: Page, earlier: Sequence[Action], max_presses: int) -> Action:
    user = re.search(r"@\S+", instruction)
    at = _BUTTONS.index(quoted(instruction)[0])
    pressed = sum(1 for action in earlier if action.name == "Click")
    if pressed < max_presses:
        for name, buttons in _posts(page):
            if user and name == user.group() and len(buttons) == 4 and hint(buttons[at]) != "active":
                return click(buttons[at])
    button = find(page, "Submit", "button")
    return click(button) if button is not None else SCROLL_DOWN


@solves("social-media-all")
def _every_post(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    return _press_posts(instruction, page, earlier, 1000)


@solves("social-media-some")
def _some_posts(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    number = re.search(r"on (\d+) post", instruction)
    return _press_posts(instruction, page, earlier, int(number.group(1)) if number else 1)


class _Dish:
    """One line of the menu, as far as it is shown."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.kinds: set[str] = set()
        self.ordered = 0
        self.plus_button: Node | None = None


def _dishes(page: Page) -> list[_Dish]:
    dishes: list[_Dish] = []
    for node in page.nodes:
        if node.kind == "text" and node.text.isdecimal():
            if dishes:
                dishes[-1].ordered = int(node.text)
        elif node.kind == "text":
            dishes.append(_Dish(node.text))
        elif dishes and node.kind == "image":
            dishes[-1].kinds.add(node.text)
        elif dishes and node.text == "+" and dishes[-1].plus_button is None:
            dishes[-1].plus_button = node
    return dishes


@solves("order-food")
def _food(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """Order dishes by name, or a number of dishes of a kind: one dish as often as asked."""
    orderable = [dish for dish in _dishes(page) if dish.plus_button is not None]
    by_kind = re.fullmatch(r"Order (\d+) items that are (\S+)", instruction)
    clicks = sum(1 for action in earlier if action.name == "Click")
    if by_kind:
        remaining = int(by_kind.group(1)) - clicks
        matching = [dish for dish in orderable if by_kind.group(2) in dish.kinds]
    else:
        names = [name.strip() for name in instruction.partition(": ")[2].split(",")]
        remaining = len(names) - clicks
        matching = [dish for dish in orderable if dish.name in names and not dish.ordered]
    if remaining > 0 and matching:
        return click(matching[0].plus_button)
    order = find(page, "Order!", "button")
    return click(order) if order is not None else SCROLL_DOWN


@solves("scroll-text")
def _last_word(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    area, field = first(live(page, "textarea")), first(live(page, "input"))
    text = (area.value or "") if area else ""
    if text.endswith("…"):
        return SCROLL_DOWN
    word = re.sub(r"[^A-Za-z0-9]", "", text.split()[-1]) if text.split() else ""
    return submit(page) if field is not None and field.value else enter(field, word)


@solves("scroll-text-2")
def _to_the_end(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    area = first(live(page, "textarea"))
    text = (area.value or "") if area else ""
    if "bottom" in instruction:
        return SCROLL_DOWN if text.endswith("…") else submit(page)
    return SCROLL_UP if text.startswith("…") else submit(page)


@solves("sign-agreement")
def _agreement(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """Scroll to the end of the text; then the field opens."""
    quotes = quoted(instruction)
    if not quotes:
        return click(find(page, "Cancel", "button"))
    field = first(live(page, "input"))
    if field is None:
        return SCROLL_DOWN
    return click(find(page, quotes[1], "button")) if field.value == quotes[0] else enter(field, quotes[0])


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
    email = find(page, sender, "clickable") or first(
        node for node in live(page, "clickable") if node.text.startswith(f"{sender} ")
    )
    if email is not None:
        return click(email)
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


@solves(
    "email-inbox",
    "email-inbox-delete",
    "email-inbox-forward",
    "email-inbox-important",
    "email-inbox-noscroll",
    "email-inbox-reply",
    "email-inbox-star-reply",
)
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


@solves("email-inbox-forward-nl")
def _worded_forward(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """Parse the many wordings of whose email is forwarded to whom."""
    sender, receiver = _SENDER.search(instruction), _RECEIVER.search(instruction)
    if sender is None or receiver is None:
        return click(None)
    return _mail(sender.group(1) or sender.group(2), "forward", receiver.group(1) or receiver.group(2), page)
