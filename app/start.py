"""`hindcast start`: the whole system under honcho, what it does in words, and an end when a goal is reached.

Consumes the log's tail. Waits for every part to answer (`READY_S`), then for the goal or a signal; a second signal waits
for nothing (`app.interrupts`). Produces `control.requested` (drain) and `run.finished` when the goal is reached;
everything else is done by the roles.
"""

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from app.alerts import Alerts
from app.bus import BUS_LOCK, READY
from app.interrupts import heed_interrupts
from app.launch import Launch, write_launch
from app.logs import style_of
from app.output import KeptOutput, keep_output
from app.places import PAGE_FILE, base_url_in
from app.processes import FAILURE, list_processes, pid_alive, read_json
from app.progress import Progress
from app.progress_note import ProgressNote
from app.runs import RunHandle, open_run
from app.supervisor import STARTER, stop_with_parent
from core.errors import BrokerUnreachable, HindcastError
from events.catalogue import ControlApplied, ControlRequested, RunFinished, RunResumed, RunStarted
from events.envelope import Fact
from events.publisher import Publisher
from events.reader import tail

PROCFILE = Path(__file__).parents[1] / "Procfile"
ROLES = (
    "bus",
    "site",
    "curriculum",
    "actor",
    "judge",
    "relabeler",
    "learner",
    "projector",
    "page",
    "archiver",
)
READY_S = 150.0
"""From the start of honcho until every part has answered."""
DRAIN_S = 10.0
"""How long requests that nobody started may take to be cancelled at the end of a finite run."""
STOP_S = 12.0
"""honcho kills after 5 s; the rest is its own end and the broker's."""
LAST_WORDS_S = 1.0
"""How long what the processes said last may take into the file."""
POLL_S = 0.1
STARTER_POLL_S = 1.0


class StartFailed(HindcastError):
    """A part of the system did not come up."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The last line of a finite start."""

    run: str
    updates: int
    episodes: int
    events: int
    wall_s: float


def check_home_is_free(home: Path) -> None:
    """Raise StartFailed when a system already runs in this home."""
    home.mkdir(parents=True, exist_ok=True)
    with (home / BUS_LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StartFailed(
                f"another system runs in {home}. Stop it first, or set HINDCAST_HOME to another folder."
            ) from None


class System:
    """honcho and everything under it."""

    def __init__(self, home: Path, *, actors: int) -> None:
        self.home = home
        self.actors = actors
        self.output = home / "honcho.log"
        self._honcho: subprocess.Popen[bytes] | None = None
        self._keeping: KeptOutput | None = None

    def start(self) -> None:
        """Start honcho in a session of its own, so that Ctrl-C reaches only us."""
        environment = {
            **os.environ,
            "HINDCAST_HOME": str(self.home),
            "PYTHON": sys.executable,
            "PYTHONUNBUFFERED": "1",
            STARTER: str(os.getpid()),
        }
        for entry in (self.home / "processes").glob("*.json"):
            entry.unlink()
        for stale in (READY, FAILURE):
            (self.home / stale).unlink(missing_ok=True)
        concurrency = f"all=1,actor={self.actors}"
        prefix = ["--no-prefix"] if style_of(self.home).is_json else []
        self._honcho = subprocess.Popen(
            [sys.executable, "-m", "honcho", "-f", str(PROCFILE), "start", "-c", concurrency, *prefix],
            cwd=PROCFILE.parent,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=stop_with_parent,
        )
        assert self._honcho.stdout is not None
        self._keeping = keep_output(self._honcho.stdout, self.output)

    def names(self) -> set[str]:
        """Names that honcho gives to the processes."""
        return {f"{role}.{n + 1}" for role in ROLES for n in range(self.actors if role == "actor" else 1)}

    def waiting_for(self) -> set[str]:
        """Parts that have not answered yet."""
        ready = {
            entry.name
            for entry in list_processes(self.home / "processes")
            if entry.state in ("ready", "finished")
        }
        return self.names() - ready

    def check(self) -> None:
        """Raise StartFailed with the end of honcho's output when honcho has ended by itself."""
        assert self._honcho is not None
        status = self._honcho.poll()
        if status is not None:
            failure = read_json(self.home / FAILURE)
            if failure is not None:
                raise StartFailed(f"{failure['name']} could not go on: {failure['message']}")
            assert self._keeping is not None
            self._keeping.join(STOP_S)
            lines = self._keeping.last_lines()
            raise StartFailed(
                "the system stopped by itself (honcho's exit status "
                f"{status}). The end of {self.output}:\n" + "\n".join(lines)
            )

    def stop(self) -> None:
        """Ask honcho to stop everything and wait for it; what does not go is killed."""
        if self._honcho is None or self._honcho.poll() is not None:
            return
        self._honcho.terminate()
        try:
            self._honcho.wait(STOP_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._honcho.pid, signal.SIGKILL)
            self._honcho.wait()
        if self._keeping is not None:
            self._keeping.join(LAST_WORDS_S)


async def wait_until_ready(system: System, say: Callable[[str], None], stop: asyncio.Event) -> None:
    """Return when every part has answered, or a stop is asked for."""
    began = time.monotonic()
    missing = system.names()
    while missing and not stop.is_set():
        system.check()
        now = system.waiting_for()
        for name in sorted(missing - now):
            say(f"{name} is ready after {time.monotonic() - began:.1f} s")
        missing = now
        if time.monotonic() - began > READY_S:
            raise StartFailed(
                f"after {READY_S:.0f} s these parts have not answered: {', '.join(sorted(missing))}. See {system.output}."
            )
        await asyncio.sleep(POLL_S)


async def follow(
    handle: RunHandle, system: System, launch: Launch, say: Callable[[str], None], stop: asyncio.Event
) -> Progress:
    """Say what happens until the goal is reached or a stop is asked for; then drain."""
    progress = Progress()
    note = ProgressNote(handle.folder)
    began = time.monotonic()
    reached = ""
    caught_up = False
    quiet_until: int | None = None

    async def read_until_goal() -> None:
        while True:
            try:
                return await read()
            except BrokerUnreachable as error:  # the system lives, and so does its end
                say(f"the log does not answer, trying further: {error}")

    async def read() -> None:
        nonlocal progress, caught_up, quiet_until
        async with handle.connect_log(role="reader") as log:
            if quiet_until is None:
                progress = await note.recall(log)
                quiet_until = (await log.identity()).last
                caught_up = progress.position >= quiet_until
            async for recorded in tail(log, after=progress.position):
                line = progress.apply(recorded)
                note.keep(progress)
                if line and (
                    recorded.position > quiet_until or isinstance(recorded.fact, RunStarted | RunResumed)
                ):
                    say(line)
                caught_up = recorded.position >= quiet_until
                if caught_up and launch.reached(progress.updates, progress.episodes, 0.0):
                    return

    async def watch() -> None:
        nonlocal reached
        alerts = Alerts(system.home)
        while not stop.is_set() and not reached:
            system.check()
            entries = list_processes(system.home / "processes")
            for line in alerts.look_at_disk() + alerts.look(entries):
                say(line)
            if caught_up:
                reached = launch.reached(progress.updates, progress.episodes, time.monotonic() - began)
            await asyncio.sleep(POLL_S)

    async with asyncio.TaskGroup() as group:
        reader = group.create_task(read_until_goal())
        await watch()
        reader.cancel()
    if reached:
        say(f"goal reached: {reached}")
        await _finish(handle, progress, reached)
    note.keep(progress, at_least=1)
    return progress


async def _finish(handle: RunHandle, progress: Progress, reason: str) -> None:
    """Cancel what nobody started, record the end. Episodes under way are abandoned by their actors' stop."""
    asked = await _record(
        handle, "control", ControlRequested(command="drain", arguments={}, author="start", reason=reason)
    )
    async with handle.connect_log(role="reader") as log:
        with contextlib.suppress(TimeoutError):  # what is still open then has a lease
            async with asyncio.timeout(DRAIN_S):
                async for recorded in tail(log, after=progress.position):
                    progress.apply(recorded)
                    answered = isinstance(recorded.fact, ControlApplied) or not progress.running
                    if recorded.position >= asked and answered:
                        break
    finished = RunFinished(reason=reason, updates=progress.updates, episodes=progress.episodes)
    # read anew: the administrator makes the settings' size limit hold, and the log may have been given more meanwhile
    await _record(open_run(handle.name, home=handle.home), "admin", finished)


async def _record(handle: RunHandle, role: str, fact: Fact) -> int:
    async with (
        handle.connect_log(role=role) as log,
        Publisher(
            log, producer=f"start.{role}", code_rev=handle.code_rev, settings=handle.settings.log
        ) as publisher,
    ):
        return await publisher.decide(fact, entity=handle.name)


def _stop_with_starter(stop: asyncio.Event) -> None:
    """Where a program started this command (a benchmark), ask for a stop once that program is gone."""
    starter = int(os.environ.get(STARTER, "0"))

    def look() -> None:
        if not pid_alive(starter):
            stop.set()
        else:
            asyncio.get_running_loop().call_later(STARTER_POLL_S, look)

    if starter:
        look()


async def run_system(
    handle_of: Callable[[], RunHandle], launch: Launch, *, home: Path, as_json: bool
) -> Summary:
    """Start everything, follow it, stop it. Returns what the run had come to."""
    began = time.monotonic()
    stop = asyncio.Event()
    heed_interrupts(stop)
    _stop_with_starter(stop)

    def say(line: str) -> None:
        if not as_json:
            sys.stdout.write(f"[{time.strftime('%H:%M:%S')}] {line}\n")
            sys.stdout.flush()

    system = System(home, actors=launch.actors)
    system.start()
    progress = Progress()
    try:
        await wait_until_ready(system, say, stop)
        if not stop.is_set():
            ready = read_json(home / READY) or {}
            page = base_url_in(home / PAGE_FILE)
            if as_json:
                sys.stdout.write(
                    json.dumps({"ready": True, "run": launch.run, "home": str(home), "page": page, **ready})
                    + "\n"
                )
                sys.stdout.flush()
            say(
                f"everything is up. Look at {page} · in another terminal: hindcast run show {launch.run} · hindcast log tail"
            )
            progress = await follow(handle_of(), system, launch, say, stop)
    finally:
        say("stopping; Ctrl-C once more ends everything at once" if stop.is_set() else "stopping")
        await asyncio.to_thread(system.stop)
        with contextlib.suppress(OSError):  # no room
            write_launch(
                home, Launch(run=launch.run, actors=launch.actors)
            )  # a goal holds for one start alone
    return Summary(
        run=launch.run,
        updates=progress.updates,
        episodes=progress.episodes,
        events=progress.position,
        wall_s=round(time.monotonic() - began, 2),
    )
