"""A site of hostile pages, with the places that they must not reach: each counts who comes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import unquote

from hindcast.actors.environments.base import SiteTraits
from hindcast.core.domain.task import Task

NAME = "shop.test"
"""How the site is called where it is reached by name; only the tests' own resolver knows it."""
OWN, PRIVATE = "127.0.0.1", "127.0.0.2"
NOTED_S = 120.0
"""A page says what became of its attempts; nothing is concluded from time."""

PRELUDE = """<!doctype html><meta charset=utf-8><title>Hostile</title>
<script>
const FOREIGN = "{foreign}", WEBSOCKET = "{foreign}".replace("http", "ws"), STUN = "{stun}";
var note = (text) => fetch("/note?" + encodeURIComponent(text), { keepalive: true });
const tried = (promise) => promise.then(() => note("reached"), () => note("refused"));
</script>
"""

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]


class Datagrams(asyncio.DatagramProtocol):
    """A port for datagrams, where a STUN server could be."""

    def __init__(self, visitors: list[str]) -> None:
        self._visitors = visitors

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._visitors.append(f"datagram from {addr}")


class HostileServer:
    """Serves `pages` by name, and misbehaves by itself at some addresses."""

    def __init__(self, pages: dict[str, str]) -> None:
        self._pages = pages
        self._running: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self.port = 0
        self.foreign = ""
        self.stun = ""
        self.notes: list[str] = []
        """What pages said."""
        self.visitors: list[str] = []
        """Who came where nobody may come."""
        self.meaning = OWN
        """Address that the site's name resolves to."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator["HostileServer"]:
        loop = asyncio.get_running_loop()
        # one port on both addresses: a name that turns from one to the other still means the same port
        own = await asyncio.start_server(self._served(self._answer_at), "0.0.0.0", 0)
        self.port = own.sockets[0].getsockname()[1]
        foreign = await asyncio.start_server(self._served(self._trespassed), OWN, 0)
        self.foreign = f"http://{OWN}:{foreign.sockets[0].getsockname()[1]}"
        transport, _ = await loop.create_datagram_endpoint(
            lambda: Datagrams(self.visitors), local_addr=(OWN, 0)
        )
        self.stun = f"stun:{OWN}:{transport.get_extra_info('sockname')[1]}"
        try:
            yield self
        finally:
            own.close()
            foreign.close()
            transport.close()
            for task in self._running:
                task.cancel()

    async def resolver(self, host: str, port: int) -> list[str]:
        if host != NAME:
            raise OSError(f"nobody is called {host}")
        return [self.meaning]

    async def noted(self, *wanted: str) -> None:
        """Wait until pages have said all of this."""
        async with asyncio.timeout(NOTED_S):
            while not set(wanted) <= set(self.notes):
                self._changed.clear()
                await self._changed.wait()

    def _served(self, answer: Handler) -> Handler:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.get_running_loop().create_task(self._conversation(answer, reader, writer))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

        return accept

    async def _conversation(
        self, answer: Handler, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            try:
                await answer(reader, writer)
            finally:
                writer.close()

    async def _answer_at(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        at_home = writer.get_extra_info("sockname")[0] == OWN
        await (self._answer if at_home else self._trespassed)(reader, writer)

    async def _trespassed(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.visitors.append(str(writer.get_extra_info("sockname")))
        await reader.readuntil(b"\r\n\r\n")
        writer.write(response("<title>Abroad</title>reached", extra="access-control-allow-origin: *\r\n"))
        await writer.drain()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            path = head.split(" ", 2)[1]
            if path.startswith("/note?"):
                self.notes.append(unquote(path.removeprefix("/note?")))
                self._changed.set()
            if path == "/never":
                await asyncio.Event().wait()
            if path == "/endless":
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n\r\n<title>Endless</title>")
                while True:
                    writer.write(b"<p>more and more" * 100)
                    await writer.drain()
                    await asyncio.sleep(0.01)
            writer.write(self._response(path))
            await writer.drain()

    def _response(self, path: str) -> bytes:
        if path.startswith("/hop"):
            left = int(path.removeprefix("/hop"))
            return redirect(f"/hop{left - 1}" if left else f"{self.foreign}/end")
        if path == "/round":
            return redirect("/round")
        if path == "/to-file":
            return redirect("file:///etc/passwd")
        if path == "/to-private":
            return redirect(f"http://{PRIVATE}:{self.port}/")
        if path == "/file":
            return response("x" * 1000, extra="content-disposition: attachment; filename=virus.exe\r\n")
        if path == "/worker.js":
            return response(f"fetch('{self.foreign}/from-worker')", kind="text/javascript")
        html = self._pages.get(path.strip("/"))
        if html is None:
            return response("<title>Missing</title>")
        prelude = PRELUDE.replace("{foreign}", self.foreign).replace("{stun}", self.stun)
        return response(prelude + html.replace("{foreign}", self.foreign))


def redirect(address: str) -> bytes:
    return f"HTTP/1.1 302 Found\r\nlocation: {address}\r\ncontent-length: 0\r\n\r\n".encode()


def response(text: str, *, kind: str = "text/html; charset=utf-8", extra: str = "") -> bytes:
    body = text.encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n{extra}content-length: {len(body)}\r\n\r\n"
    return head.encode() + body


class HostileSite:
    """The `Site` of the hostile pages; by `host` it is reached directly or by name."""

    name = "hostile"
    traits = SiteTraits()

    def __init__(self, server: HostileServer, host: str = OWN) -> None:
        self.base = f"http://{host}:{server.port}"

    def origins(self, task: Task) -> tuple[str, ...]:
        return (self.base,)

    async def enter(self, page: Any, task: Task) -> str:
        await page.goto(f"{self.base}/{task.family}", wait_until="commit")
        return "Do as the test says."

    async def probe(self, page: Any, task: Task) -> dict[str, Any]:
        return {}

    async def leave(self, task: Task) -> None:
        pass
