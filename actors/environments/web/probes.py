"""Reads what a user's site shows at the end of an episode, where its task's checks look."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urljoin

import msgspec
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Page

from hindcast.actors.environments.web.definition import Check, WebTask
from hindcast.actors.environments.web.entry import first_line
from hindcast.actors.environments.web.evaluators import ProbeResult
from hindcast.actors.environments.web.secrets import Secrets
from hindcast.actors.environments.window import MAX_TABS
from hindcast.actors.http_calls import call
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


async def look(page: Page, task: WebTask, check: Check, secrets: Secrets) -> ProbeResult:
    """Read what a check looks at. A page that cannot be read gives an error in words, never an exception."""
    if check.of in ("answer", "url"):
        return ProbeResult()
    try:
        if check.of == "http":
            return await _ask(task, check, secrets)
        if not check.at:
            return await _read(page, check)
        if len(page.context.pages) >= MAX_TABS:  # else an agent could prevent the check
            await next(other for other in page.context.pages if other is not page).close()
        beside = await page.context.new_page()
        try:
            await beside.goto(urljoin(task.start, check.at), timeout=LOOK_MS)
            return await _read(beside, check)
        finally:
            with suppress(PlaywrightError, TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await beside.close()
    except PlaywrightError as error:
        return ProbeResult(error=secrets.take_out(first_line(error)))


def bounded(found: Sequence[ProbeResult]) -> tuple[ProbeResult, ...]:
    """Cut results to what is stored; cut texts are marked."""
    left, kept = MAX_ALL_BYTES, []
    for one in found:
        texts = []
        for text in one.texts[:MAX_TEXTS]:
            # a page may hold half a surrogate pair, which an event cannot encode
            stored = text[:MAX_CHARS].encode("utf-8", "replace")[:left].decode("utf-8", "ignore")
            left -= len(stored.encode())
            texts.append(stored)
        cut = len(texts) < len(one.texts) or any(map(_is_shorter, texts, one.texts))
        kept.append(msgspec.structs.replace(one, texts=tuple(texts), cut=cut))
    return tuple(kept)


def _is_shorter(stored: str, text: str) -> bool:
    return len(stored) < len(text)


async def fingerprint(page: Page, selector: str) -> str:
    """Digest of the texts that a selector finds."""
    texts = await page.locator(selector).evaluate_all(_TEXTS, MAX_TEXTS)
    return digest_hex(json.dumps(texts).encode())


async def _read(page: Page, check: Check) -> ProbeResult:
    if check.of == "script":
        value = await page.evaluate(f"() => ({check.script})")
        return ProbeResult() if value is None else ProbeResult(texts=(_as_text(value),))
    found = page.locator(check.selector)
    if check.of == "count":
        return ProbeResult(texts=(str(await found.count()),))
    # one more than is stored, so that `bounded` sees that there are more
    texts = await found.evaluate_all(_VALUES if check.of == "value" else _TEXTS, MAX_TEXTS + 1)
    return ProbeResult(texts=tuple(map(str, texts)))


async def _ask(task: WebTask, check: Check, secrets: Secrets) -> ProbeResult:
    headers = {name: secrets.put_in(value) for name, value in check.headers.items()}
    answer = await call(urljoin(task.start, check.address), headers=headers)
    if answer.status in ABSENT:
        return ProbeResult()
    if answer.error or not 200 <= answer.status < 300:
        return ProbeResult(error=secrets.take_out(answer.error or f"it answered {answer.status}"))
    text = answer.text
    if check.field:
        try:
            value = _part(json.loads(text), check.field)
        except (ValueError, RecursionError) as error:
            # also numbers of 5 000 digits, and endlessly nested lists
            return ProbeResult(error=f"its answer is not JSON: {error}")
        if value is None:
            return ProbeResult()
        text = _as_text(value)
    return ProbeResult(texts=(secrets.take_out(text),))


def _part(value: Any, path: str) -> Any:
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
