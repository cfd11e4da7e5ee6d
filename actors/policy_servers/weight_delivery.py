"""Gives a server a version: whole weights by reloading them, an adapter by loading it next to the others.

    paused ──> "changing" ──> weights ──> prompts forgotten ──> named ──> resumed

The weights come from a folder that the server reads, or over a connection (`vllm.transfer`).

Answers may be running meanwhile. Invariant 6 holds through every crash: the name is removed from the weights before they
change and restored afterwards, and nothing is sampled in between. A process that finds a server half-way, by its name or
its pause, restarts or resumes it.
"""

import asyncio
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

import structlog

from hindcast.actors.engines.vllm.server import ServerTroubled, VllmServer, WeightOffer
from hindcast.actors.engines.vllm.weights import label_of, versions_in
from hindcast.actors.policy_servers.command import has_tied_head
from hindcast.core.errors import EngineFailed
from hindcast.core.settings.schema import Settings
from hindcast.core.settings.vllm import VllmSettings
from hindcast.events.envelope import BlobRef

CHANGING = "changing"
"""Label of weights while they change: it names no run and no version."""
TOKEN_BYTES = 16
PART_BYTES = 1 << 22
"""Bytes of a file that are read and sent at once."""

logger = structlog.get_logger(__name__)


class PublishedFile(NamedTuple):
    """A published file of weights, and its digest and size."""

    path: Path
    ref: BlobRef


class VersionSource(NamedTuple):
    """Where a version's weights come from."""

    version: int
    folder: Callable[[], AbstractAsyncContextManager[Path]]
    """Lays out the folder that servers read it from, which stays until the context ends; raises ModelFileError."""
    file: PublishedFile | None = None
    """None: version 0, the base policy."""


async def synchronise(
    server: VllmServer, label: str, settings: VllmSettings, load: Callable[[], Awaitable[None]]
) -> bool:
    """Make `server` sample from the weights that `load` gives it, under this label; returns whether that changed anything.

    Raises:
        ServerTroubled, EngineFailed: a step failed; the server is paused, or samples from its previous weights.
        ModelFileError: as `load` does.
    """
    timeout_s = settings.sync_timeout_s
    if await server.label(timeout_s=timeout_s) == label:
        if await server.is_paused(timeout_s=timeout_s):
            await server.resume(timeout_s=timeout_s)
        return False
    await server.pause(settings.pause, timeout_s=timeout_s)
    await server.name_weights(CHANGING, timeout_s=timeout_s)
    await load()
    await server.forget_prompts(timeout_s=timeout_s)
    await server.name_weights(label, timeout_s=timeout_s)
    await server.resume(timeout_s=timeout_s)
    logger.info("policy server has new weights", server=server.address, label=label)
    return True


class WeightDelivery(Protocol):
    """Gives versions to servers."""

    async def give(self, server: VllmServer, source: VersionSource) -> None:
        """Give a server a version, unless it has it.

        Raises:
            ServerTroubled, EngineFailed: it rejects the version.
            ModelFileError: its folder cannot be written, for example on a full disk.
        """
        ...


def giving_for(settings: Settings, base: Path, *, run: str) -> WeightDelivery:
    """The kind of delivery of a run. `base`: folder of the base policy."""
    if settings.learner.lora_rank:
        return AdapterDelivery(run, base, settings.vllm)
    return WholeWeightDelivery(run, settings.vllm, tied=has_tied_head(base))


class WholeWeightDelivery:
    """Replaces the server's weights."""

    def __init__(self, run: str, settings: VllmSettings, *, tied: bool) -> None:
        """`tied`: whether the policy shares its head with its embedding."""
        self._run = run
        self._settings = settings
        self._tied = tied

    async def give(self, server: VllmServer, source: VersionSource) -> None:
        """See `WeightDelivery.give`."""
        label, file = label_of(self._run, source.version), source.file
        if self._settings.transfer == "stream" and file is not None:

            async def stream() -> None:
                if not await self._stream(server, file):
                    async with source.folder() as folder:
                        await self._reload(server, folder)
                await self._repack(server)

            await synchronise(server, label, self._settings, stream)
            return
        async with source.folder() as folder:  # before the server is paused: there may be no room

            async def load_folder() -> None:
                await self._reload(server, folder)
                await self._repack(server)

            await synchronise(server, label, self._settings, load_folder)

    async def _stream(self, server: VllmServer, file: PublishedFile) -> bool:
        """Send the weights over a connection; False: the server did not take them."""
        try:
            timeout_s = self._settings.sync_timeout_s
            async with offered(file, to=server.address, timeout_s=timeout_s) as offer:
                await server.receive_weights(offer, timeout_s=timeout_s)
        except (ServerTroubled, EngineFailed, OSError) as error:
            logger.warning(
                "a policy server did not take streamed weights, and reads them from a folder",
                server=server.address,
                reason=str(error),
            )
            return False
        return True

    async def _reload(self, server: VllmServer, folder: Path) -> None:
        await server.reload(str(folder.absolute()), timeout_s=self._settings.sync_timeout_s)

    async def _repack(self, server: VllmServer) -> None:
        if self._tied:
            await server.repack_head(timeout_s=self._settings.sync_timeout_s)


@asynccontextmanager
async def offered(file: PublishedFile, *, to: str, timeout_s: float) -> AsyncIterator[WeightOffer]:
    """Within the context, send a file to everyone who connects with the offer's token.

    `to`: address of the server, which decides on which of our own addresses we listen. `timeout_s`: limit of a connection, from
    its beginning to the last byte. Raises OSError.
    """
    token = secrets.token_hex(TOKEN_BYTES)

    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                heard = await reader.readexactly(len(token))
                if secrets.compare_digest(heard, token.encode()):
                    with file.path.open("rb") as content:
                        while chunk := await asyncio.to_thread(content.read, PART_BYTES):
                            writer.write(chunk)
                            await writer.drain()
        except (OSError, asyncio.IncompleteReadError) as error:  # the receiver reports what it missed
            logger.warning("weights could not be sent", to=to, reason=str(error))
        finally:
            writer.close()

    host = await asyncio.to_thread(_own_address, to)
    async with await asyncio.start_server(send, host, 0) as listener:
        port = int(listener.sockets[0].getsockname()[1])
        yield WeightOffer(host=host, port=port, token=token, size=file.ref.size, sha256=file.ref.sha256)


def _own_address(server: str) -> str:
    """Our own address on the way to a server. Nothing is sent."""
    address = urlsplit(server)
    kind, _, _, _, socket_address = socket.getaddrinfo(
        address.hostname, address.port or 80, type=socket.SOCK_DGRAM
    )[0]
    with socket.socket(kind, socket.SOCK_DGRAM) as probe:
        probe.connect(socket_address)
        return str(probe.getsockname()[0])


class AdapterDelivery:
    """Loads adapters on the base policy, each under a name that denotes one version forever.

        base reloaded and named log:0, once ──> log:5 loaded ──> log:3 and older unloaded

    A server samples all the while. It shows a name when it has the adapter, and running answers keep theirs. The newest older
    one stays, because callers may not have seen the newest. A crash at any point leaves a server with or without the adapter,
    and the server is asked which.
    """

    def __init__(self, run: str, base: Path, settings: VllmSettings) -> None:
        self._run = run
        self._base = base
        self._settings = settings

    async def give(self, server: VllmServer, source: VersionSource) -> None:
        """See `WeightDelivery.give`."""
        timeout_s, version = self._settings.sync_timeout_s, source.version

        async def load() -> None:
            await server.reload(str(self._base.absolute()), timeout_s=timeout_s)

        await synchronise(server, label_of(self._run, 0), self._settings, load)
        loaded_versions = versions_in(await server.models(timeout_s=timeout_s), self._run)
        if version and version not in loaded_versions:
            name = label_of(self._run, version)
            async with source.folder() as folder:
                await server.load_adapter(name, str(folder.absolute()), timeout_s=timeout_s)
            logger.info("policy server has a new adapter", server=server.address, name=name)
        for outdated in [loaded for loaded in loaded_versions if loaded < version][:-1]:
            await server.unload_adapter(label_of(self._run, outdated), timeout_s=timeout_s)
