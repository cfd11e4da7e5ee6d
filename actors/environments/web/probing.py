"""What a user's site shows at the end of an episode, where its task's checks look."""

import json
from typing import Any
from urllib.parse import urljoin

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Page

from actors.environments.web.calls import call
from actors.environments.web.definition import Check, WebTask
from actors.environments.web.entering import first_line
from actors.environments.web.evaluators import Found
from actors.environments.web.secrets import Secrets
from core.ids import digest_hex

MAX_TEXTS = 50
"""Elements whose texts are kept of one check."""
MAX_CHARS = 2000
"""Of one text."""
LOOK_MS = 10_000.0
"""Opening a page to look at."""

_TEXTS = "(elements, most) => elements.slice(0, most).map(element => element.innerText ?? element.textContent ?? '')"
_VALUES = (
    "(elements, most) => elements.slice(0, most).map(element => "
    "['checkbox', 'radio'].includes(element.type) ? String(element.checked) : String(element.value ?? ''))"
)


async def look(page: Page, task: WebTask, check: Check, secrets: Secrets) -> Found:
    """What a check finds. A page that cannot be looked at is an error in words, never an exception."""
    if check.of in ("answer", "url"):
        return Found()
    try:
        if check.of == "http":
            return await _ask(task, check, secrets)
        if not check.at:
            return await _read(page, check)
        beside = await page.context.new_page()
        try:
            await beside.goto(urljoin(task.start, check.at), timeout=LOOK_MS)
            return await _read(beside, check)
        finally:
            await beside.close()
    except PlaywrightError as error:
        return Found(error=secrets.take_out(first_line(error)))


async def fingerprint(page: Page, selector: str) -> str:
    """Digest of the texts that a selector finds."""
    texts = await page.locator(selector).evaluate_all(_TEXTS, MAX_TEXTS)
    return digest_hex(json.dumps(texts).encode())


async def _read(page: Page, check: Check) -> Found:
    if check.of == "script":
        value = await page.evaluate(f"() => ({check.script})")
        return Found() if value is None else Found(texts=(_as_text(value),))
    found = page.locator(check.selector)
    if check.of == "count":
        return Found(texts=(str(await found.count()),))
    texts = await found.evaluate_all(_VALUES if check.of == "value" else _TEXTS, MAX_TEXTS)
    return Found(texts=tuple(str(text)[:MAX_CHARS] for text in texts))


async def _ask(task: WebTask, check: Check, secrets: Secrets) -> Found:
    headers = {name: secrets.put_in(value) for name, value in check.headers.items()}
    answer = await call(urljoin(task.start, check.address), headers=headers)
    if answer.error or answer.status >= 500:
        return Found(error=secrets.take_out(answer.error or f"it answered {answer.status}"))
    if answer.status >= 300:
        return Found()
    text = answer.text
    if check.field:
        try:
            value = _part(json.loads(text), check.field)
        except json.JSONDecodeError as error:
            return Found(error=f"its answer is not JSON: {error}")
        if value is None:
            return Found()
        text = _as_text(value)
    return Found(texts=(secrets.take_out(text)[:MAX_CHARS],))


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
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
