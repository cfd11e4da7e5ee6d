"""Forms: texts into fields, choices from lists, then the button."""

import re
from collections.abc import Sequence

from hindcast.actors.environments.miniwob.solvers.page_queries import (
    Solve,
    between,
    click,
    enter,
    fill,
    find,
    first,
    live,
    position,
    press,
    quoted,
    submit,
)
from hindcast.core.domain.action import Action
from hindcast.core.domain.observation import Page


def _checkboxes(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    wanted = set(between(instruction, "Select ", " and click Submit").split(", "))
    for box in live(page, "checkbox"):
        if (box.text in wanted) is not box.checked:
            return click(box)
    return submit(page)


def _option(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    radio = find(page, between(instruction, "Select ", " and click Submit"), "radio")
    return submit(page) if radio is not None and radio.checked else click(radio)


def _widget(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    kind = quoted(instruction)[0]
    return click(next(iter(live(page, "input" if kind == "text" else kind)), None))


def _lists(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """One choice from a dropdown, or several from a list that keeps earlier choices."""
    wanted = instruction.removeprefix("Select ").removesuffix(" and click Submit.")
    wanted = wanted.removesuffix(" from the list").removesuffix(" from the scroll list")
    box = next(iter(live(page, "select")), None)
    if box is None:
        return click(None)
    names = [wanted] if wanted in box.options else wanted.split(", ")
    chosen = (box.value or "").split(", ") if len(names) > 1 else [box.value or ""]
    for name in names:
        if name not in chosen:
            return Action(name="Select Dropdown Option", element=box.id, argument=name)
    return submit(page)


def _focus(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    match = re.search(r"(\d)(?:st|nd|rd)", instruction)
    inputs = live(page, "input")
    index = int(match.group(1)) - 1 if match else 0
    return click(inputs[index] if index < len(inputs) else None)


def _enter_text(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    return fill(page, quoted(instruction)[:1], earlier)


def _enter_password(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    return fill(page, quoted(instruction)[:1] * 2, earlier)


def _login(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    return fill(page, quoted(instruction)[:2], earlier)


def _read_table(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    key = between(instruction, "value of ", " into")
    rows = dict(node.text.split(" | ", 1) for node in page.nodes if " | " in node.text)
    return fill(page, [rows[key]] if key in rows else [], earlier)


def _layouts(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """Three labelled fields in any order; a label precedes its field, or follows it where a field comes first."""
    match = re.search(r"Search for (.*) movies directed by (.*) from year (.*)\.", instruction)
    if match is None:
        return click(None)
    wanted = dict(zip(("genre", "director", "year"), match.groups(), strict=True))
    wanted["date"] = wanted["year"]
    nodes = [node for node in page.nodes if node.kind in ("text", "input")]
    label_first = bool(nodes) and (nodes[0].kind == "text" or bool(nodes[0].text))
    for at, node in enumerate(nodes):
        if node.kind != "input" or node.value:
            continue
        neighbour = at - 1 if label_first else at + 1
        label = node.text or (nodes[neighbour].text if 0 <= neighbour < len(nodes) else "")
        for key, text in wanted.items():
            if key in label.lower():
                return enter(node, text)
    buttons = ("Submit", "Search", "Go!")
    return click(next((node for node in live(page, "button", "clickable") if node.text in buttons), None))


def _search_engine(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """Three results per page: search, go to the right page, click the result."""
    if len(earlier) < 2:
        return fill(page, quoted(instruction)[:1], earlier)
    match = re.search(r"the (\d)(?:st|nd|rd|th) search result", instruction)
    position = int(match.group(1)) - 1 if match else 0
    if len(earlier) == 2 and position >= 3:
        return click(find(page, str(position // 3 + 1), "link"))
    results = [node for node in live(page, "link") if node.text not in ("1", "2", "3", "<", ">")]
    return click(results[position % 3] if position % 3 < len(results) else None)


def _changed_case(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    text = quoted(instruction)[0]
    return fill(page, [text.upper() if "upper" in instruction else text.lower()], earlier)


def _date(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """A date field takes year, month, day."""
    match = re.search(r"(\d+)/(\d+)/(\d+)", instruction)
    return fill(page, ["{2}-{0}-{1}".format(*match.groups())] if match else [], earlier)


def _time(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """A time field takes hours to 23."""
    match = re.search(r"(\d+):(\d+) (AM|PM)", instruction)
    if match is None:
        return click(None)
    hour = int(match.group(1)) % 12 + (12 if match.group(3) == "PM" else 0)
    return fill(page, [f"{hour:02}:{match.group(2)}"], earlier)


def _copy(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    areas = live(page, "textarea")
    at = position(instruction)
    return fill(page, [areas[at].value or ""] if at < len(areas) else [], earlier)


def _word(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    paragraph = " ".join(node.text for node in page.nodes if node.kind == "text").split()
    at = position(instruction)
    words = [re.sub(r"[^A-Za-z]", "", word) for word in paragraph]
    return fill(page, words[at : at + 1], earlier)


def _slanted(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    text = "".join(node.text for node in page.nodes if node.kind == "text")
    return fill(page, ["".join(text.split())], earlier)


def _read_table_twice(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """A label precedes each field."""
    rows = dict(node.text.split(" | ", 1) for node in page.nodes if " | " in node.text)
    labels = [node.text.removesuffix(":") for node in page.nodes if node.text.endswith(":")]
    return fill(page, [rows[label] for label in labels if label in rows], earlier)


def _login_with_popup(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """A question may appear when a field gets the focus, so each is clicked before typing."""
    cancel = find(page, "Cancel", "button")
    if cancel is not None:
        return click(cancel)
    wanted = quoted(instruction)[:2]
    inputs = live(page, "input")
    if len(inputs) != 2 or len(wanted) != 2:
        return click(None)
    asked = sum(1 for action in earlier if action.name == "Click" and action.element == inputs[0].id)
    if not inputs[0].value:
        return enter(inputs[0], wanted[0]) if asked else click(inputs[0])
    if not inputs[1].value:
        last = earlier[-1] if earlier else None
        return enter(inputs[1], wanted[1]) if last and last.name == "Click" else click(inputs[1])
    return submit(page)


def _radio_and_number(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    places = [int(number) - 1 for number in re.findall(r"(\d)(?:st|nd|rd)", instruction)]
    radios, inputs = live(page, "radio"), live(page, "input")
    if len(places) != 2 or len(radios) != 3 or len(inputs) != 3:
        return click(None)
    if not radios[places[0]].checked:
        return click(radios[places[0]])
    for at, field in enumerate(inputs):
        text = quoted(instruction)[0] if at == places[1] else ""
        if (field.value or "") != text:
            return enter(field, text)
    return submit(page)


def _contact(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """One contact per page: page to the name, then click what is asked for."""
    name = between(instruction, "Find ", " in the contact book")
    links = [node for node in live(page, "link") if node.text]
    if not any(node.kind == "heading" and node.text == name for node in page.nodes):
        return click(find(page, ">", "link"))
    asked = first(at for at, word in enumerate(("phone", "email", "address")) if word in instruction)
    return click(links[asked] if asked is not None and asked < len(links) else None)


def _colour(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """The picker's field takes a color's number. The picker then covers the button, which keys still reach."""
    if not earlier:
        number = _COLOURS.get(between(instruction, "Select ", " with"), "")
        return enter(first(live(page, "input")), number)
    return press("Tab" if len(earlier) == 1 else "Enter")


_COLOURS = {
    "aqua": "00ffff",
    "black": "000000",
    "blue": "0000ff",
    "gold": "ffd700",
    "gray": "808080",
    "green": "008000",
    "lime": "00ff00",
    "magenta": "ff00ff",
    "maroon": "800000",
    "navy": "000080",
    "olive": "808000",
    "orange": "ffa500",
    "pink": "ffc0cb",
    "purple": "800080",
    "red": "ff0000",
    "silver": "c0c0c0",
    "teal": "008080",
    "white": "ffffff",
    "yellow": "ffff00",
}
"""Numbers of the colors that CSS names."""


SOLUTIONS: dict[str, Solve] = {
    "click-checkboxes": _checkboxes,
    "click-checkboxes-large": _checkboxes,
    "click-checkboxes-transfer": _checkboxes,
    "click-option": _option,
    "click-widget": _widget,
    "click-scroll-list": _lists,
    "choose-list": _lists,
    "focus-text": _focus,
    "focus-text-2": _focus,
    "enter-text": _enter_text,
    "enter-text-2": _changed_case,
    "enter-text-dynamic": _enter_text,
    "enter-password": _enter_password,
    "enter-date": _date,
    "enter-time": _time,
    "login-user": _login,
    "login-user-popup": _login_with_popup,
    "multi-layouts": _layouts,
    "multi-orderings": _layouts,
    "read-table": _read_table,
    "read-table-2": _read_table_twice,
    "search-engine": _search_engine,
    "copy-paste": _copy,
    "copy-paste-2": _copy,
    "find-word": _word,
    "text-transform": _slanted,
    "form-sequence-2": _radio_and_number,
    "phone-book": _contact,
    "use-colorwheel": _colour,
}
"""Solutions by family."""
