"""vLLM servers of a run: starts the local one, and finds the addresses of all for actors."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from hindcast.actors.engines.base import PolicyEngine
from hindcast.actors.engines.vllm.server import VllmServer
from hindcast.actors.policy_servers.command import HOST, server_command, server_environment, server_python
from hindcast.actors.policy_servers.role import (
    TargetWeights,
    WeightSynchronizer,
    folders_for,
    follow_published,
    published_so_far,
)
from hindcast.actors.policy_servers.server_process import ServerProcess, running
from hindcast.actors.policy_servers.weight_delivery import giving_for
from hindcast.app.runs.runs import RunHandle
from hindcast.app.system.listen_addresses import POLICY_FILE, base_url_in
from hindcast.app.system.processes import read_json, write_json
from hindcast.app.system.supervisor import die_with_parent
from hindcast.core.errors import EngineFailed
from hindcast.core.models.engine import EngineContext, find_engine
from hindcast.core.models.folders import policy_folder
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import PolicyServerTroubled
from hindcast.events.log.port import EventLog
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.run_identity import log_name

OUTPUT = Path("policy-server") / "output.log"
"""File in the home with the local server's output."""

Ready = Callable[[str], None]


def addresses_of(settings: Settings, home: Path) -> Callable[[], Sequence[str]]:
    """Returns a function that reads the servers' current addresses: the local server may have moved."""
    if settings.vllm.servers:
        return lambda: settings.vllm.servers

    def own() -> Sequence[str]:
        told = base_url_in(home / POLICY_FILE)
        return () if told is None else (told,)

    return own


@asynccontextmanager
async def opened_engine(
    handle: RunHandle, log: EventLog, publisher: Publisher
) -> AsyncIterator[PolicyEngine]:
    """The policy engine that the run's settings ask for, ready to answer."""
    settings = handle.settings

    async def report(fact: PolicyServerTroubled) -> None:
        await publisher.publish(fact, entity=fact.server)

    context = EngineContext(
        folder=policy_folder(settings.policy.base),
        settings=settings,
        log_name=lambda: log_name(log),
        server_addresses=addresses_of(settings, handle.home),
        report=report,
    )
    async with find_engine(settings.policy.engine).open(context) as engine:
        yield engine


async def keep_servers(handle: RunHandle, log: EventLog, publisher: Publisher, *, ready: Ready) -> None:
    """Start the local server, unless the settings name others, and load the newest weights into all of them, for ever.

    Raises:
        EngineFailed: the local server ended; the supervisor of this process starts both again.

    """
    settings = handle.settings
    base = policy_folder(settings.policy.base)
    run = await log_name(log)
    folders = await asyncio.to_thread(folders_for, settings, base, handle.home, run=run)
    keeper = WeightSynchronizer(
        publisher=publisher,
        blobs=handle.blobs,
        folders=folders,
        giving=giving_for(settings, base, run=run),
        settings=settings,
    )
    wanted = TargetWeights()
    async with AsyncExitStack() as stack:
        process = None
        addresses: Sequence[str] = settings.vllm.servers
        if not addresses:
            process, address = await stack.enter_async_context(_own_server(handle, base))
            addresses = (address,)
        servers = [await stack.enter_async_context(VllmServer(address)) for address in addresses]
        if process is not None:
            await process.wait_until_healthy(servers[0], timeout_s=settings.vllm.start_timeout_s)
        position = await published_so_far(log, handle.blobs, settings, wanted)
        if process is not None:
            write_json(handle.home / POLICY_FILE, _place(addresses[0]))
        ready(", ".join(addresses))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(follow_published(log, wanted, after=position))
            for server in servers:
                tasks.create_task(keeper.keep(server, wanted))
            if process is not None:
                tasks.create_task(_fail_when_ended(process, addresses[0], keeper))


async def _fail_when_ended(process: ServerProcess, address: str, keeper: WeightSynchronizer) -> None:
    ended: EngineFailed = await process.ended()
    await keeper.tell(address, "ended", str(ended).partition("\n")[0])
    raise ended


@asynccontextmanager
async def _own_server(handle: RunHandle, base: Path) -> AsyncIterator[tuple[ServerProcess, str]]:
    """A vLLM server on loopback with its address; it reuses the last port if that is free."""
    settings = handle.settings
    port = free_port(handle.home / POLICY_FILE)
    command = server_command(server_python(settings), base.absolute(), port=port, settings=settings)
    environment = server_environment(settings)
    output = handle.home / OUTPUT
    async with running(command, environment, output=output, before=die_with_parent) as process:
        yield process, f"http://{HOST}:{port}"


def _place(address: str) -> dict[str, object]:
    return {"base_url": address, "port": int(address.rpartition(":")[2])}


def free_port(file: Path) -> int:
    """The last port if it is free, else any free port.

    If another program takes the port meanwhile, the server ends and starts again with another port.
    """
    last = read_json(file)
    for port in ([int(last["port"])] if last is not None else []) + [0]:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise EngineFailed(f"no port of {HOST} is free for a vLLM server")
