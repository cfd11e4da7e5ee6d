"""The action table: maps each name of `core.domain.action.ACTIONS` to its effect on a window.

Clicks go to the point that act.js finds for the numbered element, after it checks that the element is still there,
enabled and on top. An element that cannot be acted upon is refused at once, without waiting.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from playwright.async_api import Error as PlaywrightError

from hindcast.actors.environments.navigation import is_allowed, resolve
from hindcast.actors.environments.snapshot import ACT_JS, script
from hindcast.actors.environments.window import MAX_TABS, Window, box_in
from hindcast.core.domain.action import Action
from hindcast.events.catalogue.episode import StepResult

WAIT_S = 1.0
"""Duration of the action `Wait`."""
SCROLL_HEARD_S = 5.0
"""How long a page may take to handle a scroll: one frame, unless the machine is busy or the tab is not drawn."""

SCROLL_JS = script("scroll.js")


class ActionRefused(Exception):
    """An action that cannot be executed: a step result with its reason."""

    def __init__(self, result: StepResult, detail: str) -> None:
        super().__init__(detail)
        self.result = result
        self.detail = detail


_REFUSALS: dict[str, tuple[StepResult, str]] = {
    "unknown": ("no_such_element", "element {id} is not on the page that was shown"),
    "gone": ("no_such_element", "element {id} has left the page since it was shown"),
    "disabled": ("not_actionable", "element {id} is disabled"),
    "hidden": ("not_actionable", "element {id} cannot be seen"),
    "covered": ("not_actionable", "element {id} is covered by another one"),
    "readonly": ("not_actionable", "element {id} is read-only"),
    "no field": ("not_actionable", "element {id} takes no text"),
    "no value": ("not_actionable", "element {id} of type {offered} does not take {option!r}"),
    "no dropdown": ("not_actionable", "element {id} is no dropdown"),
    "no option": ("not_actionable", "element {id} has no option {option!r}; it has {offered}"),
}


async def _ask(window: Window, action: Action, operation: str, option: str = "") -> dict[str, Any]:
    """Ask act.js about the action's element. Raises ActionRefused unless the element is ready."""
    reply: dict[str, Any] = await window.tab.page.evaluate(
        ACT_JS, {"id": action.element, "way": operation, "option": option}
    )
    window.touched = window.touched or box_in(reply.get("box"))
    state = reply.get("state")
    if state != "ready":
        result, template = _REFUSALS.get(str(state), ("not_actionable", "element {id} cannot be acted upon"))
        raise ActionRefused(
            result, template.format(id=action.element, option=option, offered=reply.get("offered", ""))
        )
    return reply


async def _click(window: Window, action: Action) -> None:
    point = await _ask(window, action, "point")
    await window.tab.page.mouse.click(point["x"], point["y"])


async def _right_click(window: Window, action: Action) -> None:
    point = await _ask(window, action, "point")
    await window.tab.page.mouse.click(point["x"], point["y"], button="right")


async def _hover(window: Window, action: Action) -> None:
    point = await _ask(window, action, "point")
    await window.tab.page.mouse.move(point["x"], point["y"])


async def _type(window: Window, action: Action) -> None:
    """Replace the field's content. The last character is typed by key events, for pages that listen to keys."""
    await _click(window, action)
    field = await _ask(window, action, "field")
    text = action.argument or ""
    keyboard = window.tab.page.keyboard
    if field.get("dated"):
        await _ask(window, action, "value", text)
    elif text:
        if len(text) > 1:
            await keyboard.insert_text(text[:-1])
        await keyboard.type(text[-1])
    else:
        await keyboard.press("Delete")


async def _search(window: Window, action: Action) -> None:
    await _type(window, action)
    await window.tab.page.keyboard.press("Enter")


_EDITING = ("Control", "Meta", "Alt", "Shift", "Enter", "Escape", "Tab", "Backspace", "Delete", "Space")
_MOVING = ("Home", "End", "ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "PageUp", "PageDown")
_KEYS = {name.lower(): name for name in (*_EDITING, *_MOVING)} | {
    "ctrl": "Control",
    "cmd": "Meta",
    "return": "Enter",
    "esc": "Escape",
    "up": "ArrowUp",
    "down": "ArrowDown",
    "left": "ArrowLeft",
    "right": "ArrowRight",
}
"""Playwright's names of keys, by what policies call them."""


async def _press(window: Window, action: Action) -> None:
    if action.element is not None:
        await _click(window, action)
    combination = (action.argument or "").strip()
    keys = (
        [_KEYS.get(key.strip().lower(), key.strip()) for key in combination.split("+")]
        if combination != "+"
        else ["+"]
    )
    try:
        await window.tab.page.keyboard.press("+".join(keys))
    except PlaywrightError as error:
        if "Unknown key" in str(error):
            raise ActionRefused(
                "not_actionable", f"there is no key {combination!r}; keys are named as Enter, Tab, Control+a"
            ) from error
        raise


def _scroll(direction: int) -> "Executor":
    async def scroll(window: Window, action: Action) -> None:
        arguments = {"share": direction * window.scroll_share, "heard_s": SCROLL_HEARD_S}
        if not await window.tab.page.evaluate(SCROLL_JS, arguments):
            raise ActionRefused(
                "not_actionable", f"the page does not scroll further {'down' if direction > 0 else 'up'}"
            )

    return scroll


async def _select(window: Window, action: Action) -> None:
    await _ask(window, action, "option", action.argument or "")


async def _wait(window: Window, action: Action) -> None:
    await asyncio.sleep(WAIT_S)


async def _new_tab(window: Window, action: Action) -> None:
    if len(window.tabs) >= MAX_TABS:
        raise ActionRefused("not_actionable", f"{MAX_TABS} tabs are open already")
    if action.argument:
        url = _address(window, action.argument)
        tab = await window.open_tab()
        await tab.page.goto(url, wait_until="commit")
    else:
        await window.open_tab()


async def _focus_tab(window: Window, action: Action) -> None:
    tab_number = (action.argument or "").strip()
    index = int(tab_number) if tab_number.isdecimal() else -1
    if not 0 <= index < len(window.tabs):
        raise ActionRefused(
            "not_actionable", f"there is no tab {tab_number!r}; tabs are numbered 0 to {len(window.tabs) - 1}"
        )
    window.focus(index)
    await window.tab.page.bring_to_front()


async def _close_tab(window: Window, action: Action) -> None:
    if len(window.tabs) == 1:
        raise ActionRefused("not_actionable", "the only tab cannot be closed")
    await window.tab.page.close()


def _address(window: Window, address: str) -> str:
    url = resolve(address, current=window.tab.page.url)
    if not is_allowed(url, window.origins):
        raise ActionRefused("navigation_blocked", f"{url[:200]} is outside {', '.join(window.origins)}")
    return url


async def _goto(window: Window, action: Action) -> None:
    await window.tab.page.goto(_address(window, action.argument or ""), wait_until="commit")


async def _back(window: Window, action: Action) -> None:
    navigations = window.tab.navigations
    if await window.tab.page.go_back(wait_until="commit") is None and window.tab.navigations == navigations:
        raise ActionRefused("not_actionable", "there is no page to go back to")


async def _forward(window: Window, action: Action) -> None:
    navigations = window.tab.navigations
    if (
        await window.tab.page.go_forward(wait_until="commit") is None
        and window.tab.navigations == navigations
    ):
        raise ActionRefused("not_actionable", "there is no page to go forward to")


Executor = Callable[[Window, Action], Awaitable[None]]

EXECUTORS: dict[str, Executor] = {
    "Click": _click,
    "Right Click": _right_click,
    "Hover": _hover,
    "Type": _type,
    "Search": _search,
    "Press": _press,
    "Scroll Up": _scroll(-1),
    "Scroll Down": _scroll(1),
    "Select Dropdown Option": _select,
    "Wait": _wait,
    "New_tab": _new_tab,
    "Tab_focus": _focus_tab,
    "Close_tab": _close_tab,
    "Goto": _goto,
    "Go_backward": _back,
    "Go_forward": _forward,
}
"""Every action but `exit`, which ends the episode without touching the page."""

LOADING = frozenset({"New_tab", "Goto", "Go_backward", "Go_forward"})
"""Actions that load a page, and so have the limit `page_timeout_s` instead of `action_timeout_s`."""
