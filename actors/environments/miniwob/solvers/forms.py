"""Forms: texts into fields, choices from lists, then the button. Some texts are sums, guesses or commands."""

import itertools
import re
from collections.abc import Sequence

from hindcast.actors.environments.miniwob.solvers.page_queries import (
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
    solves,
    submit,
)
from hindcast.core.domain.action import Action
from hindcast.core.domain.observation import Page


@solves("click-checkboxes", "click-checkboxes-large", "click-checkboxes-transfer")
def _checkboxes(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    labels = set(between(instruction, "Select ", " and click Submit").split(", "))
    for box in live(page, "checkbox"):
        if (box.text in labels) is not box.checked:
            return click(box)
    return submit(page)


@solves("click-option")
def _option(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    radio = find(page, between(instruction, "Select ", " and click Submit"), "radio")
    return submit(page) if radio is not None and radio.checked else click(radio)


@solves("click-widget")
def _widget(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    kind = quoted(instruction)[0]
    return click(next(iter(live(page, "input" if kind == "text" else kind)), None))


@solves("click-scroll-list", "choose-list")
def _lists(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """One choice from a dropdown, or several from a list that keeps earlier choices."""
    choices_text = instruction.removeprefix("Select ").removesuffix(" and click Submit.")
    choices_text = choices_text.removesuffix(" from the list").removesuffix(" from the scroll list")
    box = next(iter(live(page, "select")), None)
    if box is None:
        return click(None)
    names = [choices_text] if choices_text in box.options else choices_text.split(", ")
    selected = (box.value or "").split(", ") if len(names) > 1 else [box.value or ""]
    for name in names:
        if name not in selected:
            return Action(name="Select Dropdown Option", element=box.id, argument=name)
    return submit(page)


@solves("focus-text", "focus-text-2")
def _focus(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    match = re.search(r"(\d)(?:st|nd|rd)", instruction)
    inputs = live(page, "input")
    index = int(match.group(1)) - 1 if match else 0
    return click(inputs[index] if index < len(inputs) else None)


@solves("enter-text", "enter-text-dynamic")
def _enter_text(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    return fill(page, quoted(instruction)[:1], earlier)


@solves("enter-password")
def _enter_password(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    return fill(page, quoted(instruction)[:1] * 2, earlier)


@solves("login-user")
def _login(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    return fill(page, quoted(instruction)[:2], earlier)


@solves("read-table")
def _read_table(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    key = between(instruction, "value of ", " into")
    rows = dict(node.text.split(" | ", 1) for node in page.nodes if " | " in node.text)
    return fill(page, [rows[key]] if key in rows else [], earlier)


@solves("multi-layouts", "multi-orderings")
def _layouts(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """Three labelled fields in any order; a label precedes its field, or follows it where a field comes first."""
    match = re.search(r"Search for (.*) movies directed by (.*) from year (.*)\.", instruction)
    if match is None:
        return click(None)
    texts_by_label = dict(zip(("genre", "director", "year"), match.groups(), strict=True))
    texts_by_label["date"] = texts_by_label["year"]
    nodes = [node for node in page.nodes if node.kind in ("text", "input")]
    label_first = bool(nodes) and (nodes[0].kind == "text" or bool(nodes[0].text))
    for at, node in enumerate(nodes):
        if node.kind != "input" or node.value:
            continue
        neighbour = at - 1 if label_first else at + 1
        label = node.text or (nodes[neighbour].text if 0 <= neighbour < len(nodes) else "")
        for key, text in texts_by_label.items():
            if key in label.lower():
                return enter(node, text)
    buttons = ("Submit", "Search", "Go!")
    return click(next((node for node in live(page, "button", "clickable") if node.text in buttons), None))


@solves("search-engine")
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


@solves("enter-text-2")
def _changed_case(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    text = quoted(instruction)[0]
    return fill(page, [text.upper() if "upper" in instruction else text.lower()], earlier)


@solves("enter-date")
def _date(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """A date field takes year, month, day."""
    match = re.search(r"(\d+)/(\d+)/(\d+)", instruction)
    return fill(page, ["{2}-{0}-{1}".format(*match.groups())] if match else [], earlier)


@solves("enter-time")
def _time(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """A time field takes hours to 23."""
    match = re.search(r"(\d+):(\d+) (AM|PM)", instruction)
    if match is None:
        return click(None)
    hour = int(match.group(1)) % 12 + (12 if match.group(3) == "PM" else 0)
    return fill(page, [f"{hour:02}:{match.group(2)}"], earlier)


@solves("copy-paste", "copy-paste-2")
def _copy(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    areas = live(page, "textarea")
    at = position(instruction)
    return fill(page, [areas[at].value or ""] if at < len(areas) else [], earlier)


@solves("find-word")
def _word(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    paragraph = " ".join(node.text for node in page.nodes if node.kind == "text").split()
    at = position(instruction)
    words = [re.sub(r"[^A-Za-z]", "", word) for word in paragraph]
    return fill(page, words[at : at + 1], earlier)


@solves("text-transform")
def _slanted(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    text = "".join(node.text for node in page.nodes if node.kind == "text")
    return fill(page, ["".join(text.split())], earlier)


@solves("read-table-2")
def _read_table_twice(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """A label precedes each field."""
    rows = dict(node.text.split(" | ", 1) for node in page.nodes if " | " in node.text)
    labels = [node.text.removesuffix(":") for node in page.nodes if node.text.endswith(":")]
    return fill(page, [rows[label] for label in labels if label in rows], earlier)


@solves("login-user-popup")
def _login_with_popup(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """A question may appear when a field gets the focus, so each is clicked before typing."""
    cancel = find(page, "Cancel", "button")
    if cancel is not None:
        return click(cancel)
    credentials = quoted(instruction)[:2]
    inputs = live(page, "input")
    if len(inputs) != 2 or len(credentials) != 2:
        return click(None)
    clicks_on_name = sum(1 for action in earlier if action.name == "Click" and action.element == inputs[0].id)
    if not inputs[0].value:
        return enter(inputs[0], credentials[0]) if clicks_on_name else click(inputs[0])
    if not inputs[1].value:
        last = earlier[-1] if earlier else None
        return enter(inputs[1], credentials[1]) if last and last.name == "Click" else click(inputs[1])
    return submit(page)


@solves("form-sequence-2")
def _radio_and_number(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    indices = [int(number) - 1 for number in re.findall(r"(\d)(?:st|nd|rd)", instruction)]
    radios, inputs = live(page, "radio"), live(page, "input")
    if len(indices) != 2 or len(radios) != 3 or len(inputs) != 3:
        return click(None)
    if not radios[indices[0]].checked:
        return click(radios[indices[0]])
    for at, field in enumerate(inputs):
        text = quoted(instruction)[0] if at == indices[1] else ""
        if (field.value or "") != text:
            return enter(field, text)
    return submit(page)


@solves("phone-book")
def _contact(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """One contact per page: page to the name, then click what is asked for."""
    name = between(instruction, "Find ", " in the contact book")
    links = [node for node in live(page, "link") if node.text]
    if not any(node.kind == "heading" and node.text == name for node in page.nodes):
        return click(find(page, ">", "link"))
    link_index = first(at for at, word in enumerate(("phone", "email", "address")) if word in instruction)
    return click(links[link_index] if link_index is not None and link_index < len(links) else None)


@solves("use-colorwheel")
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


@solves("simple-arithmetic")
def _sum(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    match = re.search(r"(\d+) ([-+x]) (\d+) =", " ".join(node.text for node in page.nodes))
    if match is None:
        return click(None)
    first_number, second_number = int(match.group(1)), int(match.group(3))
    return fill(
        page,
        [
            str(
                {
                    "+": first_number + second_number,
                    "-": first_number - second_number,
                    "x": first_number * second_number,
                }[match.group(2)]
            )
        ],
        earlier,
    )


@solves("simple-algebra")
def _equation(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    match = re.search(r"(x|\d+) ([-+]) (x|\d+) = (\d+)", " ".join(node.text for node in page.nodes))
    if match is None:
        return click(None)
    left, sign, right, total = match.groups()
    if left == "x":
        x = int(total) - int(right) if sign == "+" else int(total) + int(right)
    else:
        x = int(total) - int(left) if sign == "+" else int(left) - int(total)
    return fill(page, [str(x)], earlier)


@solves("guess-number")
def _guess(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """Halve the interval. Each guess but the last shows by its successor in which direction it was wrong."""
    if earlier and earlier[-1].name == "Type":
        return submit(page)
    guesses = [int(action.argument or 0) for action in earlier if action.name == "Type"]
    low, high = 0, 9
    for guess, following in itertools.pairwise(guesses):
        low, high = (guess + 1, high) if following > guess else (low, guess - 1)
    answer = " ".join(node.text for node in page.nodes)
    if guesses:
        low, high = (guesses[-1] + 1, high) if "higher than" in answer else (low, guesses[-1] - 1)
    return enter(first(live(page, "input")), str((low + high) // 2))


@solves("generate-number")
def _generate(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    number = first(int(node.text) for node in page.nodes if node.text.isdecimal())
    bound = re.search(r"(less|greater) than (\d+)", instruction)
    if number is None:
        fits = False
    elif bound:
        fits = number < int(bound.group(2)) if bound.group(1) == "less" else number > int(bound.group(2))
    else:
        fits = number % 2 == (1 if "odd" in instruction else 0)
    return click(find(page, "Submit" if fits else "Generate", "button"))


@solves("terminal")
def _terminal(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """List the files, then remove one with the extension. The terminal takes single keys."""
    keys = [*"ls", "Enter"]
    if len(earlier) >= len(keys):
        screen = " ".join(node.text for node in page.nodes)
        files = between(screen, "user$ ls ", " user$").split()
        ending = re.search(r"extension (\.\S+)", instruction)
        fitting = [
            name
            for name in files
            if (name.endswith(ending.group(1)) if ending is not None else "." not in name)
        ]
        if not fitting:
            return click(None)
        keys += [*f"rm {fitting[0]}", "Enter"]
    at = len(earlier)
    key = "Space" if keys[at] == " " else keys[at]
    return press(key, None if at else first(live(page, "input")))
