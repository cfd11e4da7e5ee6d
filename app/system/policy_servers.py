"""vLLM servers of a run: starts those of this machine, and finds the addresses of all for actors."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from pathlib import Path

from hindcast.actors.engines.base import PolicyEngine
from hindcast.actors.engines.vllm.server import VllmServer
from hindcast.actors.policy_servers.command import (
    HOST,
    own_server,
    server_gpus,
)
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
from hindcast.app.system.listen_addresses import POLICY_FILE
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

OUTPUT = Path("policy-server")
"""Folder in the home with the output of this machine's servers: `output.log`, of further ones `output-2.log` and so on."""

Ready = Callable[[str], None]


def addresses_of(settings: Settings, home: Path) -> Callable[[], Sequence[str]]:
    """Returns a function that reads the servers' current addresses: those of this machine may have moved."""
    if settings.vllm.servers:
        return lambda: settings.vllm.servers

    return lambda: _noted(home / POLICY_FILE)


def _noted(file: Path) -> tuple[str, ...]:
    """The last addresses of this machine's servers; empty: none has been started yet."""
    last = read_json(file)
    return () if last is None else tuple(last.get("addresses") or (last["base_url"],))


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
    """Start this machine's servers, unless the settings name others, and load the newest weights into all, for ever.

    Raises:
        EngineFailed: a server of this machine ended; the supervisor of this process starts all of them again.

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
        own = {}
        if not settings.vllm.servers:
            places = list(enumerate(server_gpus(settings.vllm)))
            ports = free_ports(len(places), last=_ports(_noted(handle.home / POLICY_FILE)))
            for number, gpus in places:
                started = _own_server(handle, base, number=number, port=ports[number], gpus=gpus)
                own[f"http://{HOST}:{ports[number]}"] = await stack.enter_async_context(started)
        addresses = settings.vllm.servers or tuple(own)
        servers = [await stack.enter_async_context(VllmServer(address)) for address in addresses]
        for process, server in zip(own.values(), servers, strict=False):  # external ones: none of our own
            await process.wait_until_healthy(server, timeout_s=settings.vllm.start_timeout_s)
        position = await published_so_far(log, handle.blobs, settings, wanted)
        if own:
            note = {"base_url": addresses[0], "port": _ports(addresses)[0], "addresses": addresses}
            write_json(handle.home / POLICY_FILE, note)
        ready(", ".join(addresses))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(follow_published(log, wanted, after=position))
            for server in servers:
                tasks.create_task(keeper.keep(server, wanted))
            for address, process in own.items():
                tasks.create_task(_fail_when_ended(process, address, keeper))


async def _fail_when_ended(process: ServerProcess, address: str, keeper: WeightSynchronizer) -> None:
    ended: EngineFailed = await process.wait_for_end()
    await keeper.tell(address, "ended", str(ended).partition("\n")[0])
    raise ended


@asynccontextmanager
async def _own_server(
    handle: RunHandle, base: Path, *, number: int, port: int, gpus: Sequence[int]
) -> AsyncIterator[ServerProcess]:
    """A vLLM server on loopback. `number`: of this machine's servers, from 0."""
    command, environment = own_server(handle.settings, base.absolute(), port=port, gpus=gpus)
    output = handle.home / OUTPUT / (f"output-{number + 1}.log" if number else "output.log")
    async with running(command, environment, output=output, before=die_with_parent) as process:
        yield process


def _ports(addresses: Sequence[str]) -> list[int]:
    return [int(address.rpartition(":")[2]) for address in addresses]


def free_ports(count: int, *, last: Sequence[int] = ()) -> list[int]:
    """Different free ports of loopback: the `last` ones where they are free, else any.

    If another program takes a port meanwhile, the server ends, and all start again with other ports.
    """
    found = []
    with ExitStack() as probes:
        for number in range(count):
            probe = probes.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            for port in (*last[number : number + 1], 0):
                with suppress(OSError):
                    probe.bind((HOST, port))
                    break
            else:
                raise EngineFailed(f"no port of {HOST} is free for a vLLM server")
            found.append(int(probe.getsockname()[1]))
    return found
