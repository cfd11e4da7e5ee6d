"""`hindcast start` and `hindcast join`: run roles under honcho, show what happens, and stop them.

A start runs the whole system. It consumes the log's tail twice: for its own lines and for alerts (`app.alerts.terminal`).
It waits for every part to answer (`READY_S`), then for the goal or a signal; a second signal ends everything at once
(`app.system.interrupts`). It produces `control.requested` (drain) and `run.finished` when the goal is reached; the roles do
everything else. Between the two it waits until the drain is applied, which includes the evaluation of the last version, at
most `evaluation.final_wait_s` or until a signal. Before it reports the end, it archives (`storage.archive`) up to the log's
last position.

A join runs roles of an existing run. It consumes the tail for `run.finished`, and waits for that event or a signal.
"""

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from hindcast.app.alerts.processes import ProcessAlerts
from hindcast.app.runs.runs import RunHandle, open_run
from hindcast.app.system.interrupts import heed_interrupts
from hindcast.app.system.join import JoinRequest
from hindcast.app.system.launch import Launch, write_launch
from hindcast.app.system.listen_addresses import page_address
from hindcast.app.system.processes import READY, read_json, write_json
from hindcast.app.system.progress import Narrator, Progress, ProgressNote
from hindcast.app.system.system import (
    POLICY_SERVER,
    ROLES,
    System,
    stop_with_starter,
    wait_until_ready,
)
from hindcast.core.errors import BrokerUnreachable, HindcastError
from hindcast.core.models.engine import find_engine
from hindcast.core.text.printable import printable
from hindcast.events.catalogue import ControlApplied, ControlRequested, EvaluationFinished, RunFinished
from hindcast.events.catalogue.operation import DRAIN, EVALUATE
from hindcast.events.envelope import Fact
from hindcast.events.log.reader import tail

DRAIN_S = 10.0
"""How long the end of a finite run waits until requests that nobody started are canceled."""
POLL_S = 0.5
"""Time between two looks at the processes."""

Say = Callable[[str], None]
"""Shows a line to people."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The last line of a start with a goal."""

    run: str
    updates: int
    episodes: int
    """Training episodes played by the policy."""
    demonstrations: int
    events: int
    wall_s: float


async def follow(
    handle: RunHandle, system: System, launch: Launch, say: Say, stop: asyncio.Event, alerts: ProcessAlerts
) -> Progress:
    """Show what happens until the goal is reached or a stop is asked for; then drain."""
    progress = Progress()
    note = ProgressNote(handle.folder)
    began = time.monotonic()
    reached = ""
    caught_up = False
    narrator: Narrator | None = None
    caught_up_at = 0

    async def read_until_goal() -> None:
        while True:
            try:
                return await read()
            except BrokerUnreachable as error:  # the system runs on, and can still be ended
                say(f"the log does not answer, trying again: {error}")

    async def read() -> None:
        nonlocal progress, caught_up, caught_up_at, narrator
        async with handle.connect_log(role="reader") as log:
            if narrator is None:
                progress = await note.recall(log)
                caught_up_at = (await log.identity()).last
                caught_up = progress.position >= caught_up_at
                narrator = Narrator(progress, quiet_until=caught_up_at)
            async for recorded in tail(log, after=progress.position):
                for line in narrator.apply(recorded):
                    say(line)
                note.keep(progress)
                caught_up = recorded.position >= caught_up_at
                if caught_up and launch.reached(progress.updates, progress.episodes, 0.0):
                    return

    def is_over() -> bool:
        nonlocal reached
        if caught_up:
            reached = launch.reached(progress.updates, progress.episodes, time.monotonic() - began)
        return bool(reached)

    async with asyncio.TaskGroup() as group:
        reader = group.create_task(read_until_goal())
        await _watch_processes(system, say, stop, is_over, alerts, reader=reader)
        reader.cancel()
    if reached:
        say(f"goal reached: {reached}")
        await _finish(handle, progress, reached, say=say, stop=stop)
    note.keep(progress, at_least=1)
    return progress


async def _watch_processes(
    system: System,
    say: Say,
    stop: asyncio.Event,
    is_over: Callable[[], bool],
    alerts: ProcessAlerts,
    *,
    reader: "asyncio.Task[None]",
) -> None:
    """Show alerts about processes and disk until a stop is asked for or the run is over; `reader` ends as it is over, if not before."""
    stopped = asyncio.ensure_future(stop.wait())
    while not stop.is_set() and not is_over():
        system.check()
        for line in alerts.changes():
            say(line)
        await asyncio.wait({stopped, reader}, timeout=POLL_S, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()


async def _finish(
    handle: RunHandle, progress: Progress, reason: str, *, say: Say, stop: asyncio.Event
) -> None:
    """Cancel requests that nobody started, evaluate the last version if the run has evaluations, and record the end.

    Running episodes are abandoned when their actors stop.
    """
    from hindcast.app.runs.recipe_change import settings_now  # loads the environments

    async with handle.connect_log(role="reader") as log:
        evaluation = (await settings_now(log)).evaluation
    arguments, limit_s = ({EVALUATE: True}, evaluation.final_wait_s) if evaluation.every else ({}, DRAIN_S)
    drain = ControlRequested(command=DRAIN, arguments=arguments, author="start", reason=reason)
    asked = await _record(handle, "control", drain)
    if arguments:
        say(f"evaluating the last policy, for {limit_s:g} s at most; Ctrl-C ends the run without it")

    async def drained() -> None:
        async with handle.connect_log(role="reader") as log:
            async for recorded in tail(log, after=progress.position):
                line = progress.apply(recorded)
                if line and isinstance(recorded.fact, EvaluationFinished):
                    say(line)
                nobody_asked = not arguments and not progress.running
                if recorded.position >= asked and (isinstance(recorded.fact, ControlApplied) or nobody_asked):
                    return

    async with asyncio.TaskGroup() as group:
        over, stopped = group.create_task(drained()), group.create_task(stop.wait())
        done, _ = await asyncio.wait({over, stopped}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        for task in (over, stopped):
            task.cancel()
    if arguments and over not in done:  # requests that nobody started have a lease
        within = "before the stop" if done else f"within evaluation.final_wait_s = {limit_s:g} s"
        reason += f"; its last policy was not evaluated {within}"
    finished = RunFinished(reason=reason, updates=progress.updates, episodes=progress.episodes)
    # opening as administrator applies log.max_bytes, which may have been raised meanwhile
    await _record(open_run(handle.name, home=handle.home), "admin", finished)


async def _record(handle: RunHandle, role: str, fact: Fact) -> int:
    async with (
        handle.connect_log(role=role) as log,
        handle.publisher(log, f"start.{role}") as publisher,
    ):
        return await publisher.decide(fact, entity=handle.name)


def _heeding_stops() -> asyncio.Event:
    """An event that is set by Ctrl-C, SIGTERM, or the end of the program that started this command."""
    stop = asyncio.Event()
    heed_interrupts(stop)
    stop_with_starter(stop)
    return stop


def _sayer(as_json: bool) -> Say:
    """Prints lines with the time; nothing if the output is JSON."""

    def say(line: str) -> None:
        if not as_json:
            sys.stdout.write(f"[{time.strftime('%H:%M:%S')}] {printable(line)}\n")
            sys.stdout.flush()

    return say


def _print_ready(**what: object) -> None:
    sys.stdout.write(json.dumps({"ready": True, **what}) + "\n")
    sys.stdout.flush()


async def run_system(
    handle_of: Callable[[], RunHandle], launch: Launch, *, home: Path, as_json: bool
) -> Summary:
    """Start everything, follow it, stop it. Returns the run's summary."""
    began = time.monotonic()
    stop, say = _heeding_stops(), _sayer(as_json)
    settings = handle_of().settings
    counts = {role: 1 for role in ROLES if role not in launch.without} | {"actor": launch.actors}
    serving_s = 0.0
    if find_engine(settings.policy.engine).traits.uses_policy_servers:
        counts[POLICY_SERVER] = 1
        serving_s = settings.vllm.start_timeout_s
    system = System(home, counts, serving_s=serving_s)
    alerts = ProcessAlerts(home)
    system.start()
    progress = Progress()
    try:
        await wait_until_ready(system, say, stop, changes=alerts.changes)
        if not stop.is_set():
            ready = read_json(home / READY) or {}
            page = page_address(home, run=launch.run)
            if as_json:
                _print_ready(run=launch.run, home=str(home), page=page, **ready)
            say(
                f"everything is up. Look at {page} · in another terminal: hindcast run show {launch.run} · hindcast log tail"
            )
            handle = handle_of()
            # alerts are not shown where nothing is printed
            async with contextlib.nullcontext() if as_json else _alerts(handle, say):
                progress = await follow(handle, system, launch, say, stop, alerts)
    finally:
        with contextlib.suppress(OSError):  # the reader of the output has gone; stop all the same
            say("stopping; Ctrl-C once more ends everything at once" if stop.is_set() else "stopping")
        await asyncio.to_thread(system.stop)
        with contextlib.suppress(OSError):  # a full disk
            # a goal holds for one start
            write_launch(home, Launch(run=launch.run, actors=launch.actors, without=launch.without))
    await _finish_archive(open_run(launch.run, home=home), say)
    return Summary(
        run=launch.run,
        updates=progress.updates,
        episodes=progress.episodes,
        demonstrations=progress.demonstrations,
        events=progress.position,
        wall_s=round(time.monotonic() - began, 2),
    )


async def _finish_archive(handle: RunHandle, say: Say) -> None:
    """Archive the last events. If the archive cannot take them, say which; the run has ended all the same."""
    if handle.archive is None:
        return
    from hindcast.app.runs.archive import finish_archive  # most runs have no archive

    try:
        report = await finish_archive(handle)
    except HindcastError as error:
        sys.stderr.write(
            f"the archive in {handle.archive} lacks the end of run {handle.name}: {error}    The next start completes it, or run: "
            f"hindcast archive {handle.name} {handle.archive}\n"
        )
        return
    if report is not None:
        say(f"archived up to position {report.last}, the log's end, in {report.folder}")


def _alerts(handle: RunHandle, say: Say) -> contextlib.AbstractAsyncContextManager[None]:
    from hindcast.app.alerts.terminal import (
        telling_alerts,  # loads SQLAlchemy, while the system is up already
    )

    return telling_alerts(handle, say)


class JoinEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome, printed as the last line of `hindcast join`."""

    run: str
    reason: str
    wall_s: float


async def run_joined(handle: RunHandle, asked: JoinRequest, *, as_json: bool) -> JoinEnd:
    """Start the roles, watch them, stop them."""
    began = time.monotonic()
    stop, say = _heeding_stops(), _sayer(as_json)
    write_launch(handle.home, Launch(run=handle.name, actors=asked.counts.get("actor", 0)))
    system = System(handle.home, asked.counts, machine=asked.machine)
    alerts = ProcessAlerts(handle.home)
    system.start()
    reason = ""
    try:
        # as a bus writes it: the run is open already
        write_json(handle.home / READY, {"bus_pid": os.getpid(), "idle": handle.idle_roles})
        await wait_until_ready(system, say, stop, changes=alerts.changes)
        if not stop.is_set():
            if as_json:
                _print_ready(run=handle.name, processes=sorted(system.names()))
            say(f"joined run {handle.name} at {asked.url} as {', '.join(sorted(system.names()))}")
            reason = await _watch(handle, system, say, stop, alerts)
    finally:
        say("stopping; Ctrl-C once more ends everything at once" if stop.is_set() else "stopping")
        await asyncio.to_thread(system.stop)
    return JoinEnd(run=handle.name, reason=reason or "stopped", wall_s=round(time.monotonic() - began, 2))


async def _watch(
    handle: RunHandle, system: System, say: Say, stop: asyncio.Event, alerts: ProcessAlerts
) -> str:
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
        await _watch_processes(system, say, stop, lambda: bool(reason), alerts, reader=listening)
        listening.cancel()
    return reason
