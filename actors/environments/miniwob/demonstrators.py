"""Scripted solutions of the MiniWoB++ families, from what a person sees: instruction and page."""

import re
from collections.abc import Callable, Sequence

from core.action import Action
from core.observation import Node, Observation, Page
from core.task import Task

Demonstrate = Callable[[Task, str, Observation, Sequence[Action]], Action]

_Solve = Callable[[str, Page, Sequence[Action]], Action]


def _quoted(instruction: str) -> list[str]:
    return re.findall(r'"([^"]*)"', instruction)


def _between(instruction: str, before: str, after: str) -> str:
    match = re.search(re.escape(before) + r"(.*?)" + re.escape(after), instruction)
    return match.group(1) if match else ""


def _live(page: Page, *kinds: str) -> list[Node]:
    return [node for node in page.nodes if node.id is not None and (not kinds or node.kind in kinds)]


def _find(page: Page, text: str, *kinds: str) -> Node | None:
    return next((node for node in _live(page, *kinds) if node.text == text), None)


def _click(node: Node | None) -> Action:
    """A click, or giving up where the page does not show what the task is about."""
    if node is None:
        return Action(name="exit", argument="not found")
    return Action(name="Click", element=node.id)


def _type(node: Node, text: str) -> Action:
    return Action(name="Type", element=node.id, argument=text)


def _submit(page: Page) -> Action:
    return _click(next((node for node in reversed(_live(page, "button"))), None))


def _first_button(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    return _click(next(iter(_live(page, "button")), None))


def _button_one(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    return _click(_find(page, "ONE", "button"))


def _button_sequence(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    return _click(_find(page, "TWO" if earlier else "ONE", "button"))


def _named_button(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    return _click(_find(page, _quoted(instruction)[0], "button"))


def _named_link(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    return _click(_find(page, _quoted(instruction)[0]))


def _dialog_button(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    label = _quoted(instruction)[0]
    return _click(_find(page, "Close" if label == "x" else label, "button"))


def _tab(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    return _click(_find(page, _between(instruction, "Click on ", "."), "link"))


def _tab_search(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """Tab #1 is open at first; the others are looked into in their order."""
    link = _find(page, _quoted(instruction)[0], "clickable")
    return _click(link or _find(page, f"Tab #{len(earlier) + 2}", "link"))


def _collapsible(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    section = next(iter(_live(page, "clickable")), None)
    if section is not None and section.attributes.get("expanded") != "true":
        return _click(section)
    return _submit(page)


def _collapsible_search(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    link = _find(page, _quoted(instruction)[0], "clickable")
    return _click(link or _find(page, f"Section #{len(earlier) + 1}", "clickable"))


def _checkboxes(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    wanted = set(_between(instruction, "Select ", " and click Submit").split(", "))
    for box in _live(page, "checkbox"):
        if (box.text in wanted) is not box.checked:
            return _click(box)
    return _submit(page)


def _option(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    radio = _find(page, _between(instruction, "Select ", " and click Submit"), "radio")
    return _submit(page) if radio is not None and radio.checked else _click(radio)


def _widget(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    kind = _quoted(instruction)[0]
    return _click(next(iter(_live(page, "input" if kind == "text" else kind)), None))


def _lists(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """One choice from a dropdown, or several from a list that keeps what was chosen."""
    wanted = instruction.removeprefix("Select ").removesuffix(" and click Submit.")
    wanted = wanted.removesuffix(" from the list").removesuffix(" from the scroll list")
    box = next(iter(_live(page, "select")), None)
    if box is None:
        return _click(None)
    names = [wanted] if wanted in box.options else wanted.split(", ")
    chosen = (box.value or "").split(", ") if len(names) > 1 else [box.value or ""]
    for name in names:
        if name not in chosen:
            return Action(name="Select Dropdown Option", element=box.id, argument=name)
    return _submit(page)


def _focus(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    match = re.search(r"(\d)(?:st|nd|rd)", instruction)
    inputs = _live(page, "input")
    index = int(match.group(1)) - 1 if match else 0
    return _click(inputs[index] if index < len(inputs) else None)


def _fill(page: Page, texts: Sequence[str], earlier: Sequence[Action]) -> Action:
    """The texts into the page's inputs, in order, then its button."""
    done = sum(1 for action in earlier if action.name == "Type")
    inputs = _live(page, "input")
    if done < len(texts):
        return _type(inputs[done], texts[done]) if done < len(inputs) else _click(None)
    return _submit(page)


def _enter_text(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    return _fill(page, _quoted(instruction)[:1], earlier)


def _enter_password(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    return _fill(page, _quoted(instruction)[:1] * 2, earlier)


def _login(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    return _fill(page, _quoted(instruction)[:2], earlier)


def _read_table(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    key = _between(instruction, "value of ", " into")
    rows = dict(node.text.split(" | ", 1) for node in page.nodes if " | " in node.text)
    return _fill(page, [rows[key]] if key in rows else [], earlier)


def _layouts(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """Three labelled fields in any order; a label stands before its field, or after it where a field comes first."""
    match = re.search(r"Search for (.*) movies directed by (.*) from year (.*)\.", instruction)
    if match is None:
        return _click(None)
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
                return _type(node, text)
    buttons = ("Submit", "Search", "Go!")
    return _click(next((node for node in _live(page, "button", "clickable") if node.text in buttons), None))


def _tree(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """The name if it can be seen, else the first folder that is still closed."""
    found = _find(page, _quoted(instruction)[0], "clickable")
    closed = (node for node in _live(page, "clickable") if "xpandable" in node.attributes.get("class", ""))
    return _click(found or next(closed, None))


def _search_engine(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """Three results to a page: search, turn to the right page, click the result."""
    if len(earlier) < 2:
        return _fill(page, _quoted(instruction)[:1], earlier)
    match = re.search(r"the (\d)(?:st|nd|rd|th) search result", instruction)
    position = int(match.group(1)) - 1 if match else 0
    if len(earlier) == 2 and position >= 3:
        return _click(_find(page, str(position // 3 + 1), "link"))
    results = [node for node in _live(page, "link") if node.text not in ("1", "2", "3", "<", ">")]
    return _click(results[position % 3] if position % 3 < len(results) else None)


_SOLUTIONS: dict[str, _Solve] = {
    "click-test": _first_button,
    "click-test-2": _button_one,
    "click-button": _named_button,
    "click-button-sequence": _button_sequence,
    "click-link": _named_link,
    "click-dialog": _first_button,
    "click-dialog-2": _dialog_button,
    "click-tab": _tab,
    "click-tab-2": _tab_search,
    "click-collapsible": _collapsible,
    "click-collapsible-2": _collapsible_search,
    "click-checkboxes": _checkboxes,
    "click-option": _option,
    "click-widget": _widget,
    "click-scroll-list": _lists,
    "choose-list": _lists,
    "focus-text": _focus,
    "focus-text-2": _focus,
    "enter-text": _enter_text,
    "enter-password": _enter_password,
    "login-user": _login,
    "multi-layouts": _layouts,
    "navigate-tree": _tree,
    "read-table": _read_table,
    "search-engine": _search_engine,
}


def _demonstrator(solve: _Solve) -> Demonstrate:
    def demonstrate(
        task: Task, instruction: str, observation: Observation, earlier: Sequence[Action]
    ) -> Action:
        return solve(instruction, observation.page, earlier)

    return demonstrate


DEMONSTRATORS: dict[tuple[str, str], Demonstrate] = {
    ("miniwob", family): _demonstrator(solve) for family, solve in _SOLUTIONS.items()
}
"""A demonstrator for every family."""
