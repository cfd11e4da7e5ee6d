"""A small site of pages made for browser tests, and what it takes to open a world on it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hindcast.actors.environments.base import SiteTraits
from hindcast.actors.environments.browser import BrowserHost
from hindcast.actors.environments.world import BrowserWorld
from hindcast.core.domain.action import Action
from hindcast.core.domain.observation import Node, Page
from hindcast.core.domain.task import Task
from hindcast.core.settings.schema import ActorSettings

PAGES = Path(__file__).parent / "browser_pages"

SETTINGS = ActorSettings(page_timeout_s=4.0, action_timeout_s=2.0)
"""For pages that hang: their bounds are waited for."""
PATIENT = ActorSettings(page_timeout_s=60.0, action_timeout_s=30.0)
"""For pages that answer, however busy the machine is."""


class PageServer:
    """Serves tests/browser_pages; some addresses misbehave on purpose."""

    def __init__(self) -> None:
        self.base = ""
        self.foreign = ""
        self.requests: list[str] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator["PageServer"]:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        other = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self.foreign = f"http://127.0.0.1:{other.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            other.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                path = head.split(" ", 2)[1]
                host = head.lower().split("host: ", 1)[1].split("\r\n", 1)[0]
                self.requests.append(f"{host}{path}")
                if path == "/never":
                    await asyncio.sleep(60)
                writer.write(self._response(path))
                await writer.drain()
                if path == "/endless-body":
                    await asyncio.sleep(60)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    def _response(self, path: str) -> bytes:
        if path == "/endless-body":
            return b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n\r\n<title>Half</title><p>The first half"
        if path == "/nothing":
            return b"HTTP/1.1 204 No Content\r\n\r\n"
        if path == "/leave":
            return f"HTTP/1.1 302 Found\r\nlocation: {self.foreign}/start.html\r\ncontent-length: 0\r\n\r\n".encode()
        file = PAGES / path.split("?")[0].lstrip("/")
        status, body = "200 OK", ""
        if file.is_file():
            body = file.read_text(encoding="utf-8").replace("{foreign}", self.foreign)
        else:
            status, body = "404 Not Found", "<title>Missing</title><h1>No such page</h1>"
        content = body.encode()
        return (
            f"HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {len(content)}\r\n\r\n"
        ).encode() + content


class PageSite:
    """The `Site` of the test pages: enters the page that the task's family names."""

    name = "pages"

    def __init__(self, server: PageServer, *, reusable: bool = False) -> None:
        self._server = server
        self.traits = SiteTraits(reusable=reusable, ended="window.ended")
        self.left = 0

    def origins(self, task: Task) -> tuple[str, ...]:
        return (self._server.base,)

    async def enter(self, page: Any, task: Task) -> str:
        await page.goto(f"{self._server.base}/{task.family}")
        return "Do as the test says."

    async def probe(self, page: Any, task: Task) -> dict[str, Any]:
        return {
            "title": await page.title(),
            "seen": await page.evaluate("() => window.seen || []"),
            "scrolled": await page.evaluate("() => document.scrollingElement.scrollTop"),
        }

    async def leave(self, task: Task) -> None:
        self.left += 1


def task_at(path: str) -> Task:
    return Task(environment="pages", family=path, seed=0, instruction="", goal={}, max_steps=10)


class Visit:
    """A world that has been entered, with shorthands for tests."""

    def __init__(self, world: BrowserWorld, page: Page) -> None:
        self.world = world
        self.page = page

    async def do(self, name: str, text: str = "", argument: str | None = None) -> Any:
        """Carry out an action on the element with this text."""
        element = self.find(text).id if text else None
        outcome = await self.world.step(Action(name=name, element=element, argument=argument))
        self.page = outcome.observation.page
        return outcome

    def find(self, text: str) -> Node:
        return next(node for node in self.page.nodes if node.text == text)

    def shows(self, text: str) -> bool:
        return any(text in node.text for node in self.page.nodes)

    async def seen(self) -> list[str]:
        """What the page's scripts noted."""
        evidence = await self.world.finish(None)
        return list(evidence.probes["seen"])


@asynccontextmanager
async def visiting(host: BrowserHost, site: PageSite, path: str) -> AsyncIterator[Visit]:
    world = await host.open_world(site)
    try:
        start = await world.reset(task_at(path))
        yield Visit(world, start.observation.page)
    finally:
        await world.close()
