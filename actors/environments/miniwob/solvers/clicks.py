"""Buttons, links, tabs, sections, menus and boxes to click."""

import re
from collections.abc import Sequence

from hindcast.actors.environments.miniwob.solvers.page_queries import (
    WAIT,
    between,
    click,
    find,
    first,
    live,
    quoted,
    solves,
    submit,
)
from hindcast.core.domain.action import Action
from hindcast.core.domain.observation import Page


@solves("click-test", "click-dialog")
def _first_button(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    return click(next(iter(live(page, "button")), None))


@solves("click-test-2", "click-test-transfer")
def _button_one(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    return click(find(page, "ONE", "button"))


@solves("click-button-sequence")
def _button_sequence(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    return click(find(page, "TWO" if earlier else "ONE", "button"))


@solves("click-button", "unicode-test")
def _named_button(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    return click(find(page, quoted(instruction)[0], "button"))


@solves("click-link")
def _named_link(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    return click(find(page, quoted(instruction)[0]))


@solves("click-dialog-2")
def _dialog_button(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    label = quoted(instruction)[0]
    return click(find(page, "Close" if label == "x" else label, "button"))


@solves("click-tab")
def _tab(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    return click(find(page, between(instruction, "Click on ", "."), "link"))


@solves("click-tab-2", "click-tab-2-easy", "click-tab-2-medium", "click-tab-2-hard")
def _tab_search(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """Tab #1 is open at first; the others are opened in their order."""
    link = find(page, quoted(instruction)[0], "clickable")
    number = len(earlier) + 2
    return click(link or find(page, f"Tab #{number}", "link") or find(page, str(number), "link"))


@solves("click-collapsible", "click-collapsible-nodelay")
def _collapsible(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    section = next(iter(live(page, "clickable")), None)
    if section is not None and section.attributes.get("expanded") != "true":
        return click(section)
    return submit(page)


@solves("click-collapsible-2", "click-collapsible-2-nodelay")
def _collapsible_search(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    link = find(page, quoted(instruction)[0], "clickable")
    return click(link or find(page, f"Section #{len(earlier) + 1}", "clickable"))


@solves("navigate-tree")
def _tree(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """The name if it is visible, else the first closed folder."""
    entry = find(page, quoted(instruction)[0], "clickable")
    closed = (node for node in live(page, "clickable") if "xpandable" in node.attributes.get("class", ""))
    return click(entry or next(closed, None))


@solves("ascending-numbers")
def _ascending(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """After the first click the numbers are covered, but they are in their order."""
    return click(find(page, "1") if not earlier else first(live(page)))


@solves("grid-coordinate")
def _coordinate(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """The points are in columns from the left, each from the top."""
    match = re.search(r"\((-?\d),(-?\d)\)", instruction)
    points = live(page, "clickable")
    if match is None or len(points) != 25:
        return click(None)
    return click(points[5 * (int(match.group(1)) + 2) + 2 - int(match.group(2))])


@solves("find-greatest")
def _greatest(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    cards = [node for node in live(page, "clickable") if node.text.isdecimal()]
    if earlier or not cards:
        return submit(page)
    return click(max(cards, key=lambda card: int(card.text)))


@solves("odd-or-even")
def _odd_or_even(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """A number is between its two buttons; each step marks one."""
    numbers = [int(node.text) for node in page.nodes if re.fullmatch(r"-?\d+", node.text)]
    if len(earlier) >= len(numbers):
        return click(find(page, "Submit", "button"))
    at = len(earlier)
    buttons = [node for node in live(page, "button") if node.text == ("Odd" if numbers[at] % 2 else "Even")]
    return click(buttons[at] if at < len(buttons) else None)


@solves("button-delay")
def _delayed(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """Each `Wait` takes a second."""
    if not earlier:
        return click(find(page, "ONE", "button"))
    seconds = int(between(instruction, "wait ", " seconds") or 0)
    return WAIT if len(earlier) <= seconds else click(find(page, "TWO", "button"))


@solves("buy-ticket")
def _ticket(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """Four tickets, each a duration and a button with its price."""
    durations = [
        60 * int(match.group(1)) + int(match.group(2))
        for node in page.nodes
        if (match := re.fullmatch(r"(\d+)h (\d+)m", node.text))
    ]
    tickets = live(page, "button")
    values = (
        durations
        if "duration" in instruction
        else [int(ticket.text.rpartition("$")[2]) for ticket in tickets]
    )
    if not tickets or len(values) != len(tickets):
        return click(None)
    best = max if "longest" in instruction or "most expensive" in instruction else min
    return click(tickets[values.index(best(values))])


@solves("click-menu")
def _menu(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """A submenu opens a moment after the pointer rests on its item."""
    path = instruction.removeprefix("Select ").split(">")
    leaf = find(page, path[-1])
    if leaf is not None:
        return click(leaf)
    if earlier and earlier[-1].name == "Hover":
        return WAIT
    visible_item = first(node for name in reversed(path[:-1]) if (node := find(page, name)))
    return Action(name="Hover", element=visible_item.id) if visible_item is not None else click(None)


@solves("click-pie", "click-pie-nodelay")
def _pie(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """The slices take a moment to spread, and a click on a moving one is lost: then click again."""
    if not earlier:
        return click(find(page, "+"))
    return WAIT if len(earlier) % 2 else click(find(page, quoted(instruction)[0]))


_DIGITS = (
    "0110 1001 1001 1001 1001 1001 0110",
    "0010 0110 0010 0010 0010 0010 0010",
    "0110 1001 1001 0010 0100 1000 1111",
    "0110 1001 0001 0110 0001 1001 0110",
    "1000 1010 1010 1111 0010 0010 0010",
    "1111 1000 1000 1110 0001 1001 0110",
    "0110 1001 1000 1110 1001 1001 0110",
    "1111 1001 0001 0010 0010 0100 0100",
    "0110 1001 1001 0110 1001 1001 0110",
    "0110 1001 1001 0111 0001 1001 0110",
)
"""The digits in the page's pictures, row by row."""


@solves("number-checkboxes")
def _digit(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    pattern = _DIGITS[int(quoted(instruction)[0])].replace(" ", "")
    for box, mark in zip(live(page, "checkbox"), pattern, strict=False):
        if box.checked is not (mark == "1"):
            return click(box)
    return submit(page)
