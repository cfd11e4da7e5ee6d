"""The store as a site that browsers visit: opens a session per episode, reads its record, ends it."""

import asyncio
import urllib.error
import urllib.request
from typing import Any

import msgspec
from playwright.async_api import Page

from actors.environments.store.control import HEADER, Opening
from core.errors import EnvironmentFailed
from core.task import Task

TIMEOUT_S = 10.0
"""One call to the control API."""
PAGE_TIMEOUT_MS = 15_000.0
"""Loading the first page."""


class StoreSite:
    """Site of the store. One object serves any number of episodes at once; each is known by its page."""

    name = "store"

    def __init__(self, base_url: str, control_token: str) -> None:
        self._base = base_url.rstrip("/")
        self._control_token = control_token
        self._visits: dict[Page, tuple[str, str]] = {}
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    @property
    def allowed_origins(self) -> tuple[str, ...]:
        """The store's own origin alone."""
        return (self._base,)

    async def enter(self, page: Page, task: Task) -> str:
        """Open a session for the task and load the shop's first page. Returns the instruction."""
        answer = await self._control("POST", "/_control/sessions", msgspec.json.encode(Opening(task=task)))
        token = str(answer["token"])
        self._visits[page] = (task.id, token)
        response = await page.goto(f"{self._base}/_enter/{token}", timeout=PAGE_TIMEOUT_MS)
        if response is None or not response.ok:
            status = response.status if response else "nothing"
            raise EnvironmentFailed(
                f"the store at {self._base} answered {status} to a fresh visit for {task.id}"
            )
        return task.instruction

    async def ended(self, page: Page) -> bool:
        """Never: a visit ends when the agent says so."""
        return False

    async def probe(self, page: Page, task: Task) -> dict[str, Any]:
        """The visit's record: state on arrival, journal, state now."""
        visit = self._visits.get(page)
        if visit is None:
            raise EnvironmentFailed(f"no visit of {task.id} was opened on this page")
        return await self._control("GET", f"/_control/sessions/{visit[1]}")

    async def leave(self, task: Task) -> None:
        """End the visits of this task whose page is closed; all of them when only one is open.

        Group members run the same task at once on pages of their own; what is left over expires in the store.
        """
        mine = {page: token for page, (task_id, token) in self._visits.items() if task_id == task.id}
        for page, token in mine.items():
            if len(mine) == 1 or page.is_closed():
                del self._visits[page]
                await self._control("DELETE", f"/_control/sessions/{token}")

    async def _control(self, method: str, path: str, body: bytes | None = None) -> dict[str, Any]:
        request = urllib.request.Request(
            self._base + path,
            data=body,
            method=method,
            headers={HEADER: self._control_token, "content-type": "application/json"},
        )
        return await asyncio.to_thread(self._call, request)

    def _call(self, request: urllib.request.Request) -> dict[str, Any]:
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as response:
                decoded: dict[str, Any] = msgspec.json.decode(response.read(), type=dict[str, Any])
                return decoded
        except urllib.error.HTTPError as error:
            text = error.read(500).decode("utf-8", "replace")
            raise EnvironmentFailed(f"the store at {self._base} refused: {error.code} {text}") from error
        except (OSError, msgspec.DecodeError) as error:
            raise EnvironmentFailed(f"the store at {self._base} does not answer: {error}") from error
