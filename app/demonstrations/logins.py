"""`hindcast login`: log a browser in once, and store its cookies and storage for tasks that name them.

The file is in `secrets/logins` of the home, readable by its owner alone, because it gives access to the account.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec
from playwright.async_api import Error as PlaywrightError

from hindcast.actors.environments.base import first_line
from hindcast.actors.environments.browser import BrowserHost
from hindcast.actors.environments.web.definition import (
    UNCHECKED,
    DefinitionError,
    Login,
    Step,
    WebTask,
    task_of,
    to_plain_values,
)
from hindcast.actors.environments.web.entry import log_in, state_path
from hindcast.actors.environments.web.secrets import Secrets
from hindcast.actors.environments.web.site import WebSite
from hindcast.actors.environments.web.tasks import as_task
from hindcast.core.errors import EnvironmentFailed, SettingsError
from hindcast.core.settings.schema import ActorSettings


async def save_login(
    url: str,
    *,
    name: str,
    origins: Sequence[str],
    steps: tuple[Step, ...],
    states: Path,
    settings: ActorSettings,
    headed: bool,
    logged_in: Callable[[], Awaitable[None]],
) -> Path:
    """Open the site, wait for the login, and store the browser's state. Returns the file.

    `steps` are performed first; `logged_in` returns after the person has logged in.

    Raises:
        SettingsError: address, origins, steps or name are invalid.
        EnvironmentFailed, BrowserUnavailable: the site or the browser failed.

    """
    definition = WebTask(
        name=name,
        instruction="Log in.",
        start=url,
        origins=tuple(origins),
        checks=(UNCHECKED,),
        login=Login(steps=steps) if steps else None,
    )
    try:
        definition = task_of(to_plain_values(definition))
    except DefinitionError as wrong:
        raise SettingsError(str(wrong)) from wrong
    async with BrowserHost(settings, headed=headed) as host:
        window = await host.acquire(WebSite(states), as_task(definition, 0))
        try:
            async with asyncio.timeout(settings.page_timeout_s):
                await window.tab.page.goto(url)
            if steps:
                await log_in(window.tab.page, definition, Secrets(), states=states)
            await logged_in()
            state = await window.context.storage_state()
        except (PlaywrightError, TimeoutError) as error:
            raise EnvironmentFailed(f"the login at {url} was not stored: {first_line(error)}") from error
    return _keep(state_path(states, name), msgspec.json.encode(state))


def _keep(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    partial = path.with_suffix(".partial")
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
    partial.replace(path)
    return path
