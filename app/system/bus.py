"""The `bus` role: runs Hindcast's own broker. It starts first and stops last.

Before other roles may work, a short-lived child opens the run's stream and records `run.started` or `run.resumed`. Then
`ready.json` names the broker's address and the roles without work. On a stop, the bus waits for the last events of the
others. It also watches the work queues (`queue_watch`) and restarts the broker after a full disk (`broker_disk`).
"""

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

from hindcast.app.runs.runs import RunHandle
from hindcast.app.runs.selection import choose_run
from hindcast.app.system.broker import plan_broker
from hindcast.app.system.broker_disk import BrokerDisk
from hindcast.app.system.home import home_folder
from hindcast.app.system.private_home import make_home
from hindcast.app.system.processes import others_working, report, report_failure, write_json
from hindcast.app.system.queue_watch import QueueWatch
from hindcast.app.system.supervisor import Supervisor
from hindcast.core.errors import HindcastError

BUS_LOCK = "bus.lock"
READY = "ready.json"
PREPARE_S = 120.0
"""Limit for opening the stream and recording the start; the child loads torch to record its version and CPU features."""
OTHERS_S = 3.8
"""How long the broker outlives the stop for the other roles; honcho kills 5 s after the first process has ended."""
POLL_S = 0.05


def run_bus(name: str, folder: Path) -> int:
    """Run the broker until a stop; returns the exit status for honcho."""
    home = home_folder()
    make_home(home)
    with (home / BUS_LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.stderr.write(
                f"another system runs in {home}. Stop it, or set HINDCAST_HOME to another folder.\n"
            )
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
        status = 0 if prepared else prepare(name)
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
    status = prepare(name)
    if status == 0:
        write_json(home / READY, {"bus_pid": os.getpid(), "idle": run.idle_roles})
        queues = QueueWatch(run)
        queues.start()
        supervisor.idle()
        queues.stop()
    return status


def prepare(name: str) -> int:
    """Open the run in a child process; returns its exit status."""
    try:
        return subprocess.run(
            [sys.executable, "-P", "-m", "hindcast.app.system.worker", "prepare", name],
            timeout=PREPARE_S,
            check=False,
        ).returncode
    except subprocess.TimeoutExpired:
        sys.stderr.write(f"opening the run took longer than {PREPARE_S:.0f} s\n")
        return 1
