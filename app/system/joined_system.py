"""`hindcast join`: run roles of an existing run under honcho, until a stop or the end of the run.

Consumes the log's tail for `run.finished`. Waits for every part to answer, then for that event or a signal. Produces
nothing itself.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable

import msgspec

from hindcast.app.alerts.processes import ProcessAlerts
from hindcast.app.runs.runs import RunHandle
from hindcast.app.system.bus import READY
from hindcast.app.system.interrupts import heed_interrupts
from hindcast.app.system.join import JoinRequest
from hindcast.app.system.launch import Launch, write_launch
from hindcast.app.system.processes import list_processes, write_json
from hindcast.app.system.system import POLL_S, System, stop_with_starter, wait_until_ready
from hindcast.core.errors import BrokerUnreachable
from hindcast.events.catalogue import RunFinished
from hindcast.events.log.reader import tail


class JoinEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome, printed as the last line of `hindcast join`."""

    run: str
    reason: str
    wall_s: float


async def run_joined(handle: RunHandle, asked: JoinRequest, *, as_json: bool) -> JoinEnd:
    """Start the roles, watch them, stop them."""
    began = time.monotonic()
    stop = asyncio.Event()
    heed_interrupts(stop)
    stop_with_starter(stop)

    def say(line: str) -> None:
        if not as_json:
            sys.stdout.write(f"[{time.strftime('%H:%M:%S')}] {line}\n")
            sys.stdout.flush()

    write_launch(handle.home, Launch(run=handle.name, actors=asked.counts.get("actor", 0)))
    system = System(handle.home, asked.counts, machine=asked.machine)
    system.start()
    reason = ""
    try:
        # as a bus writes it: the run is open already
        write_json(handle.home / READY, {"bus_pid": os.getpid(), "idle": handle.idle_roles})
        await wait_until_ready(system, say, stop)
        if not stop.is_set():
            if as_json:
                ready = {"ready": True, "run": handle.name, "processes": sorted(system.names())}
                sys.stdout.write(json.dumps(ready) + "\n")
                sys.stdout.flush()
            say(f"joined run {handle.name} at {asked.url} as {', '.join(sorted(system.names()))}")
            reason = await _watch(handle, system, say, stop)
    finally:
        say("stopping; Ctrl-C once more ends everything at once" if stop.is_set() else "stopping")
        await asyncio.to_thread(system.stop)
    return JoinEnd(run=handle.name, reason=reason or "stopped", wall_s=round(time.monotonic() - began, 2))


async def _watch(handle: RunHandle, system: System, say: Callable[[str], None], stop: asyncio.Event) -> str:
    """Wait until a stop or the end of the run; returns why the run finished, empty after a stop."""
    reason = ""

    async def listen() -> None:
        nonlocal reason
        after: int | None = None
        while not reason:
            try:
                async with handle.connect_log(role="reader") as log:
                    after = (await log.identity()).last if after is None else after
                    async for recorded in tail(log, after=after):
                        after = recorded.position
                        if isinstance(recorded.fact, RunFinished):
                            reason = f"the run is finished: {recorded.fact.reason}"
                            return
            except BrokerUnreachable as error:
                say(f"the log does not answer, trying again: {error}")

    async with asyncio.TaskGroup() as group:
        listening = group.create_task(listen())
        alerts = ProcessAlerts(system.home)
        while not stop.is_set() and not reason:
            system.check()
            entries = list_processes(system.home / "processes")
            for line in alerts.look_at_disk() + alerts.look(entries):
                say(line)
            await asyncio.sleep(POLL_S)
        listening.cancel()
    return reason
