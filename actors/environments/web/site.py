"""A user's web site as a `Site`: it is reset, logged in to, opened at its start and probed at the end.

The task's goal holds everything that the site needs to know. Secrets are inserted here and dropped with the visit.
"""

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urljoin
from weakref import WeakKeyDictionary

import msgspec
from playwright.async_api import BrowserContext, Page
from playwright.async_api import Error as PlaywrightError

from hindcast.actors.environments.base import Site, SiteTraits, first_line
from hindcast.actors.environments.web.definition import Check, WebTask, origin_of, secrets_named
from hindcast.actors.environments.web.entry import STEP_MS, log_in, require_signed_in, reset_site
from hindcast.actors.environments.web.evaluators import ProbeResult, SiteReport
from hindcast.actors.environments.web.secrets import Secrets
from hindcast.actors.environments.web.tasks import ENVIRONMENT, definition_of
from hindcast.actors.environments.window import MAX_TABS
from hindcast.actors.http_calls import call
from hindcast.core.domain.task import Task
from hindcast.core.errors import EnvironmentFailed
from hindcast.core.ids import digest_hex

MAX_TEXTS = 200
"""Most elements per check whose texts are stored."""
MAX_CHARS = 20_000
"""Most characters of one text."""
MAX_ALL_BYTES = 300_000
"""Most bytes of all texts of an episode, so that its end fits into one event."""
LOOK_MS = 10_000.0
"""Time limit for opening a page to look at."""
CLOSE_S = 2.0
"""Time limit for closing it; a page that does not close goes with its context."""
ABSENT = (404, 410)
"""Statuses that mean "nothing is there"; all others but 2xx mean that the check could not look."""

_TEXTS = "(elements, most) => elements.slice(0, most).map(element => element.innerText ?? element.textContent ?? '')"
_VALUES = (
    "(elements, most) => elements.slice(0, most).map(element => "
    "['checkbox', 'radio'].includes(element.type) ? String(element.checked) : String(element.value ?? ''))"
)


async def run_check(page: Page, task: WebTask, check: Check, secrets: Secrets) -> ProbeResult:
    """Read what a check looks at. A page that cannot be read gives an error in words, never an exception."""
    if check.of in ("answer", "url"):
        return ProbeResult()
    try:
        if check.of == "http":
            return await _call_address(task, check, secrets)
        if not check.at:
            return await _read_page(page, check)
        if len(page.context.pages) >= MAX_TABS:  # else an agent could prevent the check
            await next(
                tab_to_close for tab_to_close in page.context.pages if tab_to_close is not page
            ).close()
        tab = await page.context.new_page()
        try:
            await tab.goto(urljoin(task.start, check.at), timeout=LOOK_MS)
            return await _read_page(tab, check)
        finally:
            with suppress(PlaywrightError, TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await tab.close()
    except PlaywrightError as error:
        return ProbeResult(error=secrets.take_out(first_line(error)))


def bounded(results: Sequence[ProbeResult]) -> tuple[ProbeResult, ...]:
    """Cut results to what is stored; cut texts are marked."""
    bytes_left, bounded_results = MAX_ALL_BYTES, []
    for result in results:
        texts = []
        for text in result.texts[:MAX_TEXTS]:
            # a page may hold half a surrogate pair, which an event cannot encode
            stored_text = text[:MAX_CHARS].encode("utf-8", "replace")[:bytes_left].decode("utf-8", "ignore")
            bytes_left -= len(stored_text.encode())
            texts.append(stored_text)
        cut = len(texts) < len(result.texts) or any(map(_is_shorter, texts, result.texts))
        bounded_results.append(msgspec.structs.replace(result, texts=tuple(texts), cut=cut))
    return tuple(bounded_results)


def _is_shorter(stored_text: str, text: str) -> bool:
    return len(stored_text) < len(text)


async def fingerprint(page: Page, selector: str) -> str:
    """Digest of the texts that a selector finds."""
    texts = await page.locator(selector).evaluate_all(_TEXTS, MAX_TEXTS)
    return digest_hex(json.dumps(texts).encode())


async def _read_page(page: Page, check: Check) -> ProbeResult:
    if check.of == "script":
        value = await page.evaluate(f"() => ({check.script})")
        return ProbeResult() if value is None else ProbeResult(texts=(_as_text(value),))
    elements = page.locator(check.selector)
    if check.of == "count":
        return ProbeResult(texts=(str(await elements.count()),))
    # one more than is stored, so that `bounded` sees that there are more
    texts = await elements.evaluate_all(_VALUES if check.of == "value" else _TEXTS, MAX_TEXTS + 1)
    return ProbeResult(texts=tuple(map(str, texts)))


async def _call_address(task: WebTask, check: Check, secrets: Secrets) -> ProbeResult:
    headers = {name: secrets.put_in(value) for name, value in check.headers.items()}
    answer = await call(urljoin(task.start, check.address), headers=headers)
    if answer.status in ABSENT:
        return ProbeResult()
    if answer.error or not 200 <= answer.status < 300:
        return ProbeResult(error=secrets.take_out(answer.error or f"it answered {answer.status}"))
    text = answer.text
    if check.field:
        try:
            value = _value_at(json.loads(text), check.field)
        except (ValueError, RecursionError) as error:
            # also numbers of 5 000 digits, and endlessly nested lists
            return ProbeResult(error=f"its answer is not JSON: {error}")
        if value is None:
            return ProbeResult()
        text = _as_text(value)
    return ProbeResult(texts=(secrets.take_out(text),))


def _value_at(value: Any, path: str) -> Any:
    for name in path.split("."):
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


class WebSite(Site):
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
        results = [await run_check(page, definition, check, secrets) for check in definition.checks]
        report = SiteReport(found=bounded(results), start=self._starts.get(page.context, ""))
        as_stored: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(report))
        return as_stored

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
