"""The `bus` role: runs Hindcast's own broker. It starts first and stops last.

Before other roles may work, a short-lived child opens the run's stream and records `run.started` or `run.resumed`. Then
`ready.json` names the broker's address and the roles without work. On a stop, the bus waits for the last events of the
others.

`BrokerDisk`: after a failed write nats-server keeps running and serving reads, but never writes to that stream again, and
publishers get no answer. A restart restores everything that it acknowledged. So the bus restarts the broker as soon as the
disk has `ENOUGH_BYTES` free. If writes fail although there is room (a quota, a broken disk), the pause between restarts
grows up to `LONGEST_PAUSE_S`.

`QueueWatch`: a work queue whose consumer was changed or has vanished hands out nothing, and no role notices. So the bus
checks every `log.queue_check_s`, creates such a consumer again and appends `queue.repaired`.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import structlog

from hindcast.app.runs.runs import RunHandle
from hindcast.app.runs.selection import choose_run
from hindcast.app.system.broker import plan_broker
from hindcast.app.system.forked_workers import ForkServerClient
from hindcast.app.system.home import home_folder
from hindcast.app.system.processes import READY, others_working, report, report_failure, write_json
from hindcast.app.system.supervisor import Supervisor
from hindcast.app.system.system import StartFailed, holding
from hindcast.core.errors import HindcastError
from hindcast.events.catalogue import QueueRepaired
from hindcast.events.jetstream.accounts import QUEUES
from hindcast.events.jetstream.stream_log import JetStreamLog
from hindcast.events.jetstream.stream_queue import NOT_THERE

PREPARE_S = 120.0
"""Limit for opening the stream and recording the start; the child loads torch to record its version and CPU features."""
OTHERS_S = 3.8
"""How long the broker outlives the stop for the other roles; honcho kills 5 s after the first process has ended."""
POLL_S = 0.05
FAILED = ("no space left on device", "disk quota exceeded", "file too large", "input/output error")
"""Error texts of the operating system for a failed write, as nats-server logs them."""
ENOUGH_BYTES = 16 * 1024 * 1024
"""Two of the broker's blocks."""
CHECK_S = 0.5
REMIND_S = 60.0
LONGEST_PAUSE_S = 60.0

Say = Callable[[str, str], None]
"""Takes a process state and a detail for people."""
PRODUCER = "queues.1"
STOP_S = 1.0
"""How long a stop waits for the running check."""

_log = structlog.get_logger(__name__)


def run_bus(name: str, folder: Path) -> int:
    """Run the broker until a stop; returns the exit status for honcho."""
    home = home_folder()
    with ExitStack() as stack:
        try:
            stack.enter_context(holding(home))
        except StartFailed as error:  # not reported in the home, where the other system reports
            sys.stderr.write(f"{error}\n")
            return 1
        try:
            return _run(name, folder, home)
        except HindcastError as error:
            sys.stderr.write(f"{error}\n")
            report_failure(home, name=name, message=str(error))
            return error.exit_code


def _run(name: str, folder: Path, home: Path) -> int:
    run = choose_run(home)
    idle = run.idle_roles
    if run.settings.log.url:
        return _use_foreign(name, folder, home, run=run)
    queues = QueueWatch(run)
    plan = plan_broker(home, port=run.settings.log.port)

    def say(state: str, detail: str) -> None:
        sys.stderr.write(f"{detail}\n")
        supervisor.say(state, detail)

    # nats-server exits with 0 when another process stops it, and with 2 when it panics
    watch = BrokerDisk(plan.store, say=say)
    supervisor = Supervisor(name, plan.command, folder=folder, watch=watch, lasting=True)
    supervisor.catch_signals()
    prepared = False

    def on_started(pid: int) -> int:
        nonlocal prepared
        status = 0 if prepared else prepare(name, folder, supervisor)
        if status == 0:
            if not prepared:  # once: a restart on a full disk must not fail because a file cannot be written
                write_json(home / READY, {"bus_pid": os.getpid(), "port": plan.port, "idle": idle})
                queues.start()
            prepared = True
            report(folder, name=name, pid=pid, state="ready", restarts=supervisor.restarts)
        return status

    def before_stop() -> None:
        queues.stop()
        until = time.monotonic() + OTHERS_S
        while time.monotonic() < until and others_working(folder, besides=("bus",)):
            time.sleep(POLL_S)

    return supervisor.run(on_started=on_started, before_stop=before_stop)


def _use_foreign(name: str, folder: Path, home: Path, *, run: RunHandle) -> int:
    """Only open the run: the broker at `log.url` is not ours."""
    supervisor = Supervisor(name, lambda: (), folder=folder)
    supervisor.catch_signals()
    status = prepare(name, folder, supervisor)
    if status == 0:
        write_json(home / READY, {"bus_pid": os.getpid(), "idle": run.idle_roles})
        queues = QueueWatch(run)
        queues.start()
        supervisor.idle()
        queues.stop()
    return status


def prepare(name: str, folder: Path, supervisor: Supervisor) -> int:
    """Open the run in a child process, which a stop ends; returns its exit status."""
    client = ForkServerClient(folder, "prepare", name, is_stopping=supervisor.is_stopping)
    forked = client.start(os.environ)
    if forked is None and supervisor.is_stopping():
        return 0
    child = forked or subprocess.Popen(
        [sys.executable, "-P", "-m", "hindcast.app.system.worker", "prepare", name]
    )
    until = time.monotonic() + PREPARE_S
    try:
        while (status := child.poll()) is None:
            if time.monotonic() > until:
                sys.stderr.write(f"opening the run took longer than {PREPARE_S:.0f} s\n")
                os.kill(child.pid, signal.SIGKILL)
                return 1
            if supervisor.is_stopping():
                child.terminate()
            time.sleep(POLL_S)
        return 0 if supervisor.is_stopping() else status
    finally:
        client.close()


def free_bytes(folder: Path) -> int:
    """Free bytes on the disk that holds a folder."""
    return shutil.disk_usage(folder).free


class BrokerDisk:
    """Asks for a restart of the broker after failed writes; implements `supervisor.WorkerWatch`."""

    def __init__(
        self,
        store: Path,
        *,
        say: Say,
        clock: Callable[[], float] = time.monotonic,
        free: Callable[[Path], int] = free_bytes,
    ) -> None:
        """Watch the broker whose store is in `store`; `say` shows the state to people."""
        self._store = store
        self._say = say
        self._clock = clock
        self._free = free
        self._failed = False
        self._check_at = 0.0
        self._remind_at = 0.0
        self._pause_s = 0.0
        self._renewed_at = float("-inf")

    def heard(self, line: str) -> None:
        """Read one line of the broker's output."""
        if self._failed or not ("[ERR]" in line or "[FTL]" in line) or not any(w in line for w in FAILED):
            return
        now = self._clock()
        again = now - self._renewed_at < 2 * max(self._pause_s, CHECK_S) + REMIND_S
        self._pause_s = min(LONGEST_PAUSE_S, max(1.0, 2 * self._pause_s)) if again else 0.0
        self._failed = True
        self._check_at = now + self._pause_s
        self._remind_at = now

    def wants_renewal(self) -> bool:
        """Whether the supervisor should restart the broker now."""
        now = self._clock()
        if not self._failed:
            return False
        if now >= self._remind_at:
            self._remind_at = now + REMIND_S
            self._say(
                "paused",
                f"the broker cannot write to {self._store} ({self._free(self._store) / 2**20:.0f} MiB free): no event "
                "is lost and all roles wait. Free space on that disk; the broker then restarts by itself",
            )
        if now < self._check_at:
            return False
        self._check_at = now + CHECK_S
        if self._free(self._store) < ENOUGH_BYTES:
            return False
        self._failed = False
        self._renewed_at = now
        return True


def queues_of(handle: RunHandle) -> dict[str, str]:
    """Work queue -> event family, for the queues that a role of this run works on."""
    idle = handle.idle_roles
    return {name: queue.family for name, queue in QUEUES.items() if queue.role not in idle}


async def make_queues(handle: RunHandle, stream: JetStreamLog) -> None:
    """Create missing queues; repair and report changed ones. Needs the role `admin`."""
    await stream.make_positions()
    for name, family in queues_of(handle).items():
        wrong = await stream.ensure_queue(name, family=family)
        if wrong and wrong != NOT_THERE:
            await _report(handle, stream, name, wrong)


async def check_queues(handle: RunHandle, stream: JetStreamLog) -> None:
    """Repair and report every queue that was changed or has vanished. Needs the role `admin`."""
    for name, family in queues_of(handle).items():
        wrong = await stream.ensure_queue(name, family=family)
        if wrong:
            await _report(handle, stream, name, wrong)


async def _report(handle: RunHandle, stream: JetStreamLog, name: str, wrong: str) -> None:
    _log.warning("a work queue was repaired", queue=name, was=wrong)
    async with handle.publisher(stream, PRODUCER) as publisher:
        await publisher.publish(QueueRepaired(queue=name, wrong=wrong), entity=name)
        await publisher.commit()


class QueueWatch:
    """Checks the queues every `log.queue_check_s` in its own thread, because the supervisor's loop blocks."""

    def __init__(self, handle: RunHandle) -> None:
        self._handle = handle
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="queue watch", daemon=True)

    def start(self) -> None:
        """Begin to check, once the run is open."""
        self._thread.start()

    def stop(self) -> None:
        """Stop checking; waits at most `STOP_S` for the running check."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(STOP_S)

    def _run(self) -> None:
        while not self._stop.wait(self._handle.settings.log.queue_check_s):
            try:
                asyncio.run(self._look())
            except Exception as error:  # the thread's boundary: the watch outlives whatever one look meets
                _log.warning("work queues could not be checked", error=str(error) or type(error).__name__)

    async def _look(self) -> None:
        async with self._handle.connect("admin") as connection:
            stream = await JetStreamLog.open(connection, self._handle.name, self._handle.settings.log)
            await check_queues(self._handle, stream)
