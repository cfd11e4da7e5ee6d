"""Lists and texts that are longer than the window: act on what is shown, then scroll on."""

import re
from collections.abc import Sequence

from hindcast.actors.environments.miniwob.solvers.page_queries import (
    SCROLL_DOWN,
    SCROLL_UP,
    Solve,
    between,
    click,
    enter,
    find,
    first,
    hint,
    live,
    quoted,
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


def _press_posts(instruction: str, page: Page, earlier: Sequence[Action], most: int) -> Action:
    user = re.search(r"@\S+", instruction)
    at = _BUTTONS.index(quoted(instruction)[0])
    pressed = sum(1 for action in earlier if action.name == "Click")
    if pressed < most:
        for name, buttons in _posts(page):
            if user and name == user.group() and len(buttons) == 4 and hint(buttons[at]) != "active":
                return click(buttons[at])
    button = find(page, "Submit", "button")
    return click(button) if button is not None else SCROLL_DOWN


def _every_post(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    return _press_posts(instruction, page, earlier, 1000)


def _some_posts(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    number = re.search(r"on (\d+) post", instruction)
    return _press_posts(instruction, page, earlier, int(number.group(1)) if number else 1)


class _Dish:
    """One line of the menu, as far as it is shown."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.kinds: set[str] = set()
        self.ordered = 0
        self.more: Node | None = None


def _dishes(page: Page) -> list[_Dish]:
    found: list[_Dish] = []
    for node in page.nodes:
        if node.kind == "text" and node.text.isdecimal():
            if found:
                found[-1].ordered = int(node.text)
        elif node.kind == "text":
            found.append(_Dish(node.text))
        elif found and node.kind == "image":
            found[-1].kinds.add(node.text)
        elif found and node.text == "+" and found[-1].more is None:
            found[-1].more = node
    return found


def _food(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """Order dishes by name, or a number of dishes of a kind: one dish as often as asked."""
    shown = [dish for dish in _dishes(page) if dish.more is not None]
    by_kind = re.fullmatch(r"Order (\d+) items that are (\S+)", instruction)
    clicks = sum(1 for action in earlier if action.name == "Click")
    if by_kind:
        missing = int(by_kind.group(1)) - clicks
        wanted = [dish for dish in shown if by_kind.group(2) in dish.kinds]
    else:
        names = [name.strip() for name in instruction.partition(": ")[2].split(",")]
        missing = len(names) - clicks
        wanted = [dish for dish in shown if dish.name in names and not dish.ordered]
    if missing > 0 and wanted:
        return click(wanted[0].more)
    order = find(page, "Order!", "button")
    return click(order) if order is not None else SCROLL_DOWN


def _last_word(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    area, field = first(live(page, "textarea")), first(live(page, "input"))
    text = (area.value or "") if area else ""
    if text.endswith("…"):
        return SCROLL_DOWN
    word = re.sub(r"[^A-Za-z0-9]", "", text.split()[-1]) if text.split() else ""
    return submit(page) if field is not None and field.value else enter(field, word)


def _to_the_end(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    area = first(live(page, "textarea"))
    text = (area.value or "") if area else ""
    if "bottom" in instruction:
        return SCROLL_DOWN if text.endswith("…") else submit(page)
    return SCROLL_UP if text.startswith("…") else submit(page)


def _agreement(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """Scroll to the end of the text; then the field opens."""
    wanted = quoted(instruction)
    if not wanted:
        return click(find(page, "Cancel", "button"))
    field = first(live(page, "input"))
    if field is None:
        return SCROLL_DOWN
    return click(find(page, wanted[1], "button")) if field.value == wanted[0] else enter(field, wanted[0])


SOLUTIONS: dict[str, Solve] = {
    "social-media": _post,
    "social-media-all": _every_post,
    "social-media-some": _some_posts,
    "order-food": _food,
    "scroll-text": _last_word,
    "scroll-text-2": _to_the_end,
    "sign-agreement": _agreement,
}
"""Solutions by family."""
