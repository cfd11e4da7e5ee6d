"""What happens before an episode on a user's site begins: the back end is reset, the browser logs in.

The caller bounds the time. Error messages do not contain the secrets in use.
"""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import msgspec
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Page

from hindcast.actors.environments.base import first_line
from hindcast.actors.environments.web.definition import Login, Reset, Step, WebTask, origin_of
from hindcast.actors.environments.web.secrets import Secrets
from hindcast.actors.http_calls import call
from hindcast.core.errors import EnvironmentFailed
from hindcast.core.structs import decode_json

SHOWN_CHARS = 300
"""Characters of a failed reset's output in a message."""
STEP_MS = 60_000.0
"""Time limit of one login step: longer than the caller waits for all of them."""
SIGNED_IN_MS = 8_000.0
"""How long a loaded start page may take to show that the user is logged in."""


async def reset_site(reset: Reset, secrets: Secrets, *, name: str) -> None:
    """Reset the back end. Raises EnvironmentFailed when that fails."""
    if reset.command:
        await _run(reset.command, secrets, name=name)
        return
    answer = await call(
        secrets.put_in_address(reset.url),
        method=reset.method,
        headers={key: secrets.put_in(value) for key, value in reset.headers.items()},
        body=secrets.put_in(reset.body).encode() or None,
    )
    if answer.error or not 200 <= answer.status < 300:
        # removed before cutting: half a secret would not be found
        problem = answer.error or f"{answer.status} {secrets.take_out(answer.text)[:SHOWN_CHARS]}"
        raise EnvironmentFailed(secrets.take_out(f"the reset of {name} at {reset.url} failed: {problem}"))


async def _run(command: tuple[str, ...], secrets: Secrets, *, name: str) -> None:
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise EnvironmentFailed(
            f"the reset of {name} did not start: {command[0]}: {error.strerror}"
        ) from error
    try:
        output, _ = await process.communicate()
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        raise
    if process.returncode != 0:
        error_text = secrets.take_out(output.decode("utf-8", "replace"))[-SHOWN_CHARS:].strip()
        raise EnvironmentFailed(
            f"the reset of {name} ended with {process.returncode}: {command[0]}: {error_text or 'it said nothing'}"
        )


async def log_in(page: Page, task: WebTask, secrets: Secrets, *, states: Path) -> None:
    """Log the browser in as the task says; leaves the page wherever that ends.

    Raises:
        EnvironmentFailed: a step cannot be done, or the saved state does not exist.
    """
    login = task.login
    assert login is not None
    if login.state:
        await apply_state(page, read_state(states, login.state))
        return
    for number, step in enumerate(login.steps):
        try:
            await _do(page, step, task.start, secrets)
        except PlaywrightError as error:
            raise EnvironmentFailed(
                secrets.take_out(f"step {number} of the login of {task.name} failed: {first_line(error)}")
            ) from None


async def require_signed_in(page: Page, task: WebTask, login: Login) -> None:
    """Check that the start page shows the `signed_in` element. Raises EnvironmentFailed."""
    if not login.signed_in:
        return
    try:
        await page.locator(login.signed_in).first.wait_for(state="visible", timeout=SIGNED_IN_MS)
    except PlaywrightError:
        advice = (
            f"It has expired, or is of another site. Run: hindcast login {task.start} --name {login.state}"
            if login.state
            else "Are its steps and the user's name and password right?"
        )
        login_text = f"the saved state {login.state!r}" if login.state else "the login"
        raise EnvironmentFailed(
            f"after {login_text} {task.start} does not show {login.signed_in!r} (login.signed_in of {task.name}). {advice}"
        ) from None


async def _do(page: Page, step: Step, start: str, secrets: Secrets) -> None:
    value = secrets.put_in(step.value)
    if step.goto:
        await page.goto(urljoin(start, secrets.put_in_address(step.goto)), timeout=STEP_MS)
    elif step.fill:
        await page.locator(step.fill).fill(value, timeout=STEP_MS)
    elif step.click:
        await page.locator(step.click).click(timeout=STEP_MS)
    elif step.select:
        await page.locator(step.select).select_option(value, timeout=STEP_MS)
    elif step.press:
        await page.keyboard.press(step.press)
    else:
        await page.locator(step.wait).first.wait_for(state="visible", timeout=STEP_MS)
    # a click or a key may have sent a form: the next step reads the new page
    await page.wait_for_load_state("load", timeout=STEP_MS)


class LocalStorageItem(msgspec.Struct, frozen=True):
    """One item of an origin's local storage."""

    name: str
    value: str


class OriginStorage(msgspec.Struct, frozen=True, rename="camel"):
    """An origin's local storage."""

    origin: str
    local_storage: tuple[LocalStorageItem, ...] = ()


class SavedLogin(msgspec.Struct, frozen=True):
    """A saved login, as Playwright writes it (`BrowserContext.storage_state`)."""

    cookies: tuple[dict[str, Any], ...] = ()
    origins: tuple[OriginStorage, ...] = ()


def state_path(states: Path, name: str) -> Path:
    """Path of the saved state of this name."""
    return states / f"{name}.json"


def read_state(states: Path, name: str) -> SavedLogin:
    """Read a saved login. Raises EnvironmentFailed when there is none of this name."""
    path = state_path(states, name)
    try:
        return decode_json(path.read_bytes(), SavedLogin)
    except OSError as error:
        raise EnvironmentFailed(
            f"there is no saved login {name!r} ({path}: {error.strerror}). Run: hindcast login URL --name {name}"
        ) from error
    except msgspec.DecodeError as error:
        raise EnvironmentFailed(f"{path} is no saved login: {error}. Run: hindcast login again") from error


async def apply_state(page: Page, state: SavedLogin) -> None:
    """Give the page's context the cookies and the local storage of a saved login. Raises EnvironmentFailed."""
    try:
        await page.context.add_cookies([*state.cookies])  # type: ignore[list-item]  # written by Playwright itself
        for origin in state.origins:
            await page.goto(f"{origin_of(origin.origin)}/", timeout=STEP_MS)
            await page.evaluate(
                "entries => { for (const { name, value } of entries) localStorage.setItem(name, value); }",
                msgspec.to_builtins(origin.local_storage),
            )
    except PlaywrightError as error:
        # the message may quote a cookie
        raise EnvironmentFailed(
            f"the saved login could not be put into the browser: {type(error).__name__}"
        ) from None
