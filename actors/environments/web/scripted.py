"""A scripted person: steps from a file, performed with mouse and keyboard. For rehearsals and tests."""

import asyncio
from pathlib import Path
from urllib.parse import urljoin

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Page

from hindcast.actors.environments.base import first_line
from hindcast.actors.environments.web.definition import Definition, DefinitionError, Step, check_steps
from hindcast.actors.environments.web.person import Person
from hindcast.core.errors import SettingsError
from hindcast.core.structs import convert
from hindcast.core.text.plain_values import parse_toml

STEP_S = 60.0
"""Time limit of one step, until its effect is visible."""


class Script(Definition, frozen=True, kw_only=True):
    """The steps to perform, and the answer at the end."""

    steps: tuple[Step, ...] = ()
    answer: str | None = None


def read_script(path: Path) -> Script:
    """Read a script. Raises SettingsError, naming file and key."""
    try:
        script = convert(parse_toml(path.read_text(encoding="utf-8")), Script)
        check_steps("steps", script.steps)
    except OSError as error:
        raise SettingsError(f"the script {path} cannot be read: {error.strerror}") from error
    except (ValueError, DefinitionError) as error:
        raise SettingsError(f"the script {path}: {error}") from error
    return script


async def act_out(script: Script, person: Person, *, start: str) -> None:
    """Perform the script, each step once the one before has been recorded; then end the recording."""
    for number, step in enumerate(script.steps):
        try:
            async with asyncio.timeout(STEP_S):
                heard = person.heard
                if await _do(person.window.tab.page, step, start):
                    await person.has_told(heard + 1)
                await person.idle.wait()
        except (PlaywrightError, TimeoutError) as error:
            person.drop(f"step {number} of the script could not be done: {first_line(error)}")
            return
    person.end(script.answer)


async def _do(page: Page, step: Step, start: str) -> bool:
    """Perform one step; returns whether the page reports it at once."""
    if step.goto:
        await page.goto(urljoin(start, step.goto))
        return False
    if step.press:
        await page.keyboard.press(step.press)
        return True
    element = page.locator(step.fill or step.click or step.select or step.wait).first
    await element.wait_for(state="visible")
    if step.wait:
        return False
    if step.select:
        await element.focus()
        await page.keyboard.type(step.value)  # a person may type the first letters of an option
        return True
    await element.scroll_into_view_if_needed()
    box = await element.bounding_box()
    if box is None:
        raise PlaywrightError("it cannot be seen")
    await page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    if step.click:
        return True
    await page.keyboard.press("Control+a")
    await page.keyboard.type(step.value)
    return False
