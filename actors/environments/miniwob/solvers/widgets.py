"""Sliders, spinners, calendars, suggestions, drop-downs and the text editor: widgets with keys and small buttons."""

import re
from collections.abc import Sequence

from hindcast.actors.environments.miniwob.solvers.page_queries import (
    SCROLL_DOWN,
    WAIT,
    between,
    click,
    enter,
    find,
    first,
    hint,
    hinted,
    live,
    position,
    press,
    quoted,
    solves,
    submit,
)
from hindcast.core.domain.action import Action
from hindcast.core.domain.observation import Node, Page

_MONTHS = (
    ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"]
)  # fmt: skip
_WHOLE = re.compile(r"-?\d+")


def _handles(page: Page) -> list[tuple[Node, int]]:
    """Sliders with their values: each handle precedes its number."""
    sliders: list[tuple[Node, int]] = []
    handle: Node | None = None
    for node in page.nodes:
        if node.id is not None and hint(node).startswith("ui-s"):
            handle = node
        elif handle is not None and _WHOLE.fullmatch(node.text):
            sliders.append((handle, int(node.text)))
            handle = None
    return sliders


def _slide(page: Page, goals: Sequence[int], leap: int) -> Action | None:
    """The next key that brings the sliders to the wanted values; `leap` is the most that Page Up can move."""
    for (handle, value), goal in zip(_handles(page), goals, strict=False):
        if value == goal:
            continue
        focused = hint(handle) == "ui-state-focus"
        if abs(goal - value) >= leap:
            key = "PageUp" if goal > value else "PageDown"
        else:
            key = "ArrowRight" if goal > value else "ArrowLeft"
        return press(key, None if focused else handle)
    return None


@solves("use-slider")
def _slider(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    goal = int(between(instruction, "Select ", " with") or 0)
    return _slide(page, [goal], 20) or submit(page)


@solves("use-slider-2")
def _sliders(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    goals = [int(number) for number in _WHOLE.findall(instruction)]
    return _slide(page, goals, 4) or submit(page)


@solves("form-sequence")
def _slider_and_box(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    key = _slide(page, [int(between(instruction, "Select ", " with") or 0)], 4)
    if key is not None:
        return key
    for at, box in enumerate(live(page, "checkbox")):
        if box.checked is not (at == position(instruction)):
            return click(box)
    return submit(page)


@solves("use-spinner")
def _spinner(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    goal = int(between(instruction, "Select ", " with") or 0)
    field, buttons = first(live(page, "input")), live(page, "button")
    value = int((field.value if field else None) or 0)
    if value == goal or len(buttons) < 3:
        return submit(page)
    return click(buttons[0 if goal > value else 1])


@solves("choose-date", "choose-date-easy", "choose-date-medium", "choose-date-nodelay")
def _calendar(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """Open it, page to the month, click the day."""
    match = re.search(r"(\d+)/(\d+)/\d+", instruction)
    if match is None:
        return click(None)
    month, day = int(match.group(1)), int(match.group(2))
    field = first(live(page, "input"))
    if field is not None and field.value:
        return submit(page)
    visible_month = first(
        node.text.split()[0] for node in page.nodes if re.fullmatch(r"[A-Z][a-z]+ \d{4}", node.text)
    )
    if visible_month not in _MONTHS:
        return click(field)
    away = month - 1 - _MONTHS.index(visible_month)
    return click(find(page, "Next" if away > 0 else "Prev" if away else str(day), "link"))


@solves("use-autocomplete", "use-autocomplete-nodelay")
def _suggestion(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """Type the beginning, go down the suggestions until one ends as asked, and close them."""
    start, *endings = quoted(instruction)
    field = first(live(page, "input"))
    if field is None:
        return click(None)
    value = field.value or ""
    if not value:
        return enter(field, start)
    if value.startswith(start) and all(value.endswith(ending) for ending in endings):
        button = find(page, "Submit", "button")
        if button is not None:
            return click(button)
        # Enter takes the suggestion; where none is marked, only Escape closes the list.
        return press("Escape" if not endings or earlier[-1].argument == "Enter" else "Enter")
    return press("ArrowDown")


@solves("form-sequence-3")
def _dropdown(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """The list opens at its arrow and shows three entries at a time; closed, it shows the chosen one."""
    choice = between(instruction, "Choose ", " from the dropdown")
    button = find(page, quoted(instruction)[0], "button")
    if button is None:  # the open list covers the buttons
        return click(entry) if (entry := find(page, choice, "clickable")) else SCROLL_DOWN
    if any(choice in node.text for node in page.nodes if node.kind != "button"):
        return click(button)
    return click(first(node for node in live(page, "clickable") if node.text.endswith("▾")))


@solves("text-editor")
def _editor(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """Select everything or a word by keys, then click the style."""
    field = first(node for node in page.nodes if node.kind == "textarea")
    text = (field.value or "") if field else ""
    word = between(instruction, "give the text ", " the ")
    if word:
        at = re.search(rf"(?<!\S){re.escape(word)}(?!\S)", text)
        steps = at.start() if at else 0
        keys = ["Control+Home"] + ["ArrowRight"] * steps + ["Shift+ArrowRight"] * len(word)
    else:
        keys = ["Control+a"]
    steps_taken = len(earlier)
    if steps_taken < len(keys):
        return press(keys[steps_taken], None if steps_taken else field)
    if steps_taken == len(keys):  # the editor sees a selection with the next frame
        return WAIT
    return _style(instruction, page, steps_taken - len(keys) - 1)


_STYLES = {"bold": "ql-bold", "italics": "ql-italic", "underlined": "ql-underline"}
_COLOURS = ("red", "orange", "yellow", "green", "blue", "purple")
"""Colors in the first row of the palette, after black."""


_SWATCHES = ("ql-selected", "ql-primary", "ql-picker-item")


def _style(instruction: str, page: Page, steps_taken: int) -> Action:
    match = re.search(r"(?:style|color) (\w+)", instruction)
    name = match.group(1) if match else ""
    if name in _STYLES:
        return click(hinted(page, _STYLES[name])) if steps_taken == 0 else submit(page)
    if steps_taken == 0:
        return click(hinted(page, "ql-picker-label"))
    palette = [node for node in live(page) if hint(node) in _SWATCHES]
    if steps_taken == 1 and name in _COLOURS:
        at = 1 + _COLOURS.index(name)
        return click(palette[at] if at < len(palette) else None)
    return submit(page)


_HOUR = re.compile(r"(\d+)(am|pm)", re.IGNORECASE)
_LENGTHS = {"30 mins": 1, "0.5 hours": 1, "60 mins": 2, "1 hour": 2, "90 mins": 3, "1.5 hours": 3}
"""Durations in half hours."""


def _hour(text: str) -> int | None:
    match = _HOUR.fullmatch(text.strip())
    return int(match.group(1)) % 12 + (12 if match.group(2).lower() == "pm" else 0) if match else None


def _free(page: Page, opening: int, closing: int, length: int) -> tuple[Node, Node] | None:
    """First and last half hour of a gap. Events last at least an hour, so a half hour next to a free hour adjoins it."""
    hours: list[tuple[int, list[Node]]] = []
    for node in page.nodes:
        hour = _hour(node.text)
        if hour is not None:
            hours.append((hour, []))
        elif hours and node.id is not None and hint(node) == "half-hour":
            hours[-1][1].append(node)
    hours = [(hour, cells) for hour, cells in hours if opening <= hour < closing]
    for at, (_, cells) in enumerate(hours):
        if len(cells) == 2 and length <= 2:
            return cells[0], cells[length - 1]
        if length == 3 and at + 1 < len(hours):
            next_cells = hours[at + 1][1]
            if len(cells) == 2 and next_cells:
                return cells[0], next_cells[0]
            if len(cells) == 1 and len(next_cells) == 2:
                return cells[0], next_cells[1]
    return None


@solves("daily-calendar")
def _appointment(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """A click begins the event, moving to its last half hour draws it, a click on it asks for the name."""
    name = first(node for node in live(page, "input"))
    event_name = quoted(instruction)[0]
    if name is not None:
        create = find(page, "Create", "button")
        if name.value != event_name:
            return enter(name, event_name)
        return click(create) if create is not None else SCROLL_DOWN
    new_event = find(page, "New event")
    if new_event is not None:
        return click(new_event)
    match = re.search(r"Create an? (.*) event .* between (\w+) and (\w+)\.", instruction)
    if match is None:
        return click(None)
    opening, closing = _hour(match.group(2)) or 0, _hour(match.group(3)) or 24
    gap = _free(page, opening, closing, _LENGTHS.get(match.group(1), 1))
    if gap is None:
        return SCROLL_DOWN
    if earlier and earlier[-1].name == "Click":
        return Action(name="Hover", element=gap[1].id)
    return click(gap[0])
