"""The store as a site that browsers visit: opens a session per episode, reads its record, ends it."""

from typing import Any

import msgspec
from playwright.async_api import BrowserContext, Page

from hindcast.actors.environments.base import SiteTraits, Visit
from hindcast.actors.environments.store.session import HEADER, Opening
from hindcast.actors.http_calls import call
from hindcast.core.domain.task import Task
from hindcast.core.errors import EnvironmentFailed
from hindcast.core.structs import decode_json

TIMEOUT_S = 10.0
"""Time limit of one call to the control API."""
RECORD_BYTES = 32 * 2**20
"""Largest record; more than any visit's journal has."""
SAID = 500
"""Characters of a refusal that a message shows."""
PAGE_TIMEOUT_MS = 15_000.0
"""Time limit for loading the first page."""


class StoreVisit(msgspec.Struct, kw_only=True):
    """The session of one episode."""

    task_id: str
    token: str
    was_read: bool = False
    """Whether its record was read, so that ending it loses nothing."""


class StoreSite:
    """Site of the store. One object serves any number of concurrent episodes, each identified by its browser context."""

    name = "store"
    traits = SiteTraits(reusable=True)

    def __init__(self, base_url: str, control_token: str) -> None:
        self.base_url = base_url.rstrip("/")
        """Address of the store's server, without a slash at the end."""
        self._control_token = control_token
        self._visits: dict[BrowserContext, StoreVisit] = {}
        self._watched: set[BrowserContext] = set()
        self._over: list[str] = []
        """Tokens of visits that can no longer be read."""

    def origins(self, task: Task) -> tuple[str, ...]:
        """The store's own origin alone."""
        return (self.base_url,)

    async def enter(self, page: Page, task: Task) -> str:
        """Open a session for the task and load the shop's first page. Returns the instruction.

        Raises EnvironmentFailed when the store does not answer or has another catalogue than the task's.
        """
        token = await self._open(task)
        context = page.context
        self._forget(context)
        if context not in self._watched:
            self._watched.add(context)
            context.on("close", self._closed)
        self._visits[context] = StoreVisit(task_id=task.id, token=token)
        response = await page.goto(f"{self.base_url}/_enter/{token}", timeout=PAGE_TIMEOUT_MS)
        if response is None or not response.ok:
            status = response.status if response else "nothing"
            raise EnvironmentFailed(
                f"the store at {self.base_url} answered {status} to a fresh visit for {task.id}"
            )
        return task.instruction

    async def probe(self, page: Page, task: Task) -> dict[str, Any]:
        """The visit's record: state on arrival, journal, final state. See `session.VisitRecord`."""
        visit = self._visits.get(page.context)
        if visit is None or visit.task_id != task.id:
            raise EnvironmentFailed(f"no visit of {task.id} was opened in this browser context")
        record = await self._control("GET", f"/_control/sessions/{visit.token}")
        visit.was_read = True
        return record

    async def leave(self, task: Task) -> None:
        """End the visits of this task whose record was read, and visits whose browser context is gone or reused.

        Members of a group run the same task concurrently, so the task alone does not identify a visit. A broken episode leaves
        its visit until its context goes, or until the store expires it.
        """
        finished = [context for context, v in self._visits.items() if v.was_read and v.task_id == task.id]
        for context in finished:
            self._over.append(self._visits.pop(context).token)
        while self._over:
            await self._control("DELETE", f"/_control/sessions/{self._over.pop()}")

    async def open_visit(self, task: Task) -> Visit:
        """See `Visitable`."""
        token = await self._open(task)
        return Visit(url=f"{self.base_url}/_enter/{token}", token=token)

    async def read_visit(self, visit: Visit, task: Task) -> dict[str, Any]:
        """See `Visitable`: the visit's record, as `probe` returns it."""
        return await self._control("GET", f"/_control/sessions/{visit.token}")

    async def close_visit(self, visit: Visit) -> None:
        """See `Visitable`."""
        await self._control("DELETE", f"/_control/sessions/{visit.token}")

    async def _open(self, task: Task) -> str:
        answer = await self._control("POST", "/_control/sessions", msgspec.json.encode(Opening(task=task)))
        return str(answer["token"])

    def _forget(self, context: BrowserContext) -> None:
        visit = self._visits.pop(context, None)
        if visit is not None:
            self._over.append(visit.token)

    def _closed(self, context: BrowserContext) -> None:
        self._watched.discard(context)
        self._forget(context)

    async def _control(self, method: str, path: str, body: bytes | None = None) -> dict[str, Any]:
        answer = await call(
            self.base_url + path,
            method=method,
            headers={HEADER: self._control_token, "content-type": "application/json"},
            body=body,
            timeout_s=TIMEOUT_S,
            max_bytes=RECORD_BYTES,
        )
        if answer.error:
            raise EnvironmentFailed(f"the store at {self.base_url} does not answer: {answer.error}")
        if not 200 <= answer.status < 300:
            raise EnvironmentFailed(
                f"the store at {self.base_url} refused: {answer.status} {answer.text[:SAID]}"
            )
        try:
            record: dict[str, Any] = decode_json(answer.body, dict[str, Any])
            return record
        except msgspec.DecodeError as error:
            raise EnvironmentFailed(f"the store at {self.base_url} does not answer: {error}") from error
