"""A user's web site as a `Site`: it is reset, logged in to, opened at its start and probed at the end.

The task's goal holds everything that the site needs to know. Secrets are inserted here and dropped with the visit.
"""

import asyncio
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
from playwright.async_api import BrowserContext, Page
from playwright.async_api import Error as PlaywrightError

from hindcast.actors.environments.site import SiteTraits
from hindcast.actors.environments.web.definition import WebTask, origin_of, secrets_named
from hindcast.actors.environments.web.entry import STEP_MS, first_line, log_in, require_signed_in, reset_site
from hindcast.actors.environments.web.evaluators import SiteReport
from hindcast.actors.environments.web.probes import bounded, fingerprint, look
from hindcast.actors.environments.web.secrets import Secrets
from hindcast.actors.environments.web.tasks import ENVIRONMENT, definition_of
from hindcast.core.domain.task import Task
from hindcast.core.errors import EnvironmentFailed


class WebSite:
    """Site of every task of the environment `web`. One object serves any number of concurrent episodes."""

    name = ENVIRONMENT
    traits = SiteTraits(probes_active=True)

    def __init__(self, states: Path, *, trusted: bool = True) -> None:
        """`states`: folder of saved logins. `trusted`: whether the tasks are the user's own, so that their reset commands run and
        their secrets are inserted; a log from elsewhere must not cause either.
        """
        self._states = states
        self._trusted = trusted
        self._starts: WeakKeyDictionary[BrowserContext, str] = WeakKeyDictionary()
        """Fingerprint at the start of the visit in a context."""
        self._batches: set[str] = set()
        """Back ends that were reset once for this process's episodes, by their reset."""
        self._resetting = asyncio.Lock()

    def origins(self, task: Task) -> tuple[str, ...]:
        """The task's origins."""
        return tuple(origin_of(origin) for origin in self._definition(task).origins)

    async def enter(self, page: Page, task: Task) -> str:
        """Reset, log in, open the start page. Returns the instruction.

        Raises:
            EnvironmentFailed: reset or login failed, or the start page answered with an error.
        """
        definition, secrets = self._definition(task), Secrets()
        if not self._trusted:
            _require_harmless(definition)
        secrets.learn(secrets_named(definition))
        try:
            await page.set_viewport_size({"width": definition.viewport[0], "height": definition.viewport[1]})
            await self._reset(definition, secrets)
            if definition.login is not None:
                await log_in(page, definition, secrets, states=self._states)
            response = await page.goto(definition.start, timeout=STEP_MS)
            if response is not None and response.status >= 400:
                raise EnvironmentFailed(
                    f"{definition.start} answered {response.status} to the start of {definition.name}"
                )
            if definition.login is not None:
                await require_signed_in(page, definition, definition.login)
            if definition.fingerprint:
                self._starts[page.context] = await fingerprint(page, definition.fingerprint)
        except PlaywrightError as error:
            raise EnvironmentFailed(
                secrets.take_out(
                    f"{definition.name} did not begin at {definition.start}: {first_line(error)}"
                )
            ) from None
        return task.instruction

    async def probe(self, page: Page, task: Task) -> dict[str, Any]:
        """The results of the task's checks, in plain values: see `evaluators.SiteReport`."""
        definition, secrets = self._definition(task), Secrets()
        found = [await look(page, definition, check, secrets) for check in definition.checks]
        report = SiteReport(found=bounded(found), start=self._starts.get(page.context, ""))
        as_stored: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(report))
        return as_stored

    async def leave(self, task: Task) -> None:
        """Do nothing: everything goes with the context."""

    async def _reset(self, task: WebTask, secrets: Secrets) -> None:
        if task.reset == "none":
            return
        if task.resets == "per_episode":
            await reset_site(task.reset, secrets, name=task.name)
            return
        key = msgspec.json.encode(task.reset).decode()
        async with self._resetting:
            if key not in self._batches:
                await reset_site(task.reset, secrets, name=task.name)
                self._batches.add(key)

    @staticmethod
    def _definition(task: Task) -> WebTask:
        try:
            return definition_of(task)
        except msgspec.ValidationError as error:
            raise EnvironmentFailed(
                f"{task.id} is no task of the environment web: {error}. Was it written by another Hindcast?"
            ) from error


def _require_harmless(task: WebTask) -> None:
    wants = [f"the secret {name}" for name in sorted(secrets_named(task))]
    if task.reset != "none":
        wants.append(f"the reset {task.reset.url or ' '.join(task.reset.command)}")
    if task.login is not None and task.login.state:
        wants.append(f"the saved login {task.login.state}")
    if wants:
        raise EnvironmentFailed(
            f"{task.name} asks for {', '.join(wants)}, and a log may come from anybody. If it is yours: --trust-tasks"
        )
