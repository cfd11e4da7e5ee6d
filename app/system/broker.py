"""The broker of a home: use the running one, or start a temporary one for a command.

Two servers on one JetStream store would ruin it. `broker.json` names the process that runs the broker of a home, and its
port; it changes only under `broker.lock`. The `bus` process runs a permanent broker and stops a temporary one first.
Commands share a lock on `broker.users`; the last to release it stops a temporary broker. If that command was killed,
`broker_watchdog` stops the broker.

Every wait is bounded by a constant below.
"""

import asyncio
import fcntl
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Self

import msgspec
import psutil

from hindcast.app.system import broker_watchdog
from hindcast.app.system.broker_watchdog import HOME_VARIABLE
from hindcast.app.system.processes import pid_alive, process_began, read_json, write_json
from hindcast.core.errors import BrokerUnreachable
from hindcast.core.structs import convert
from hindcast.events.disk import PRIVATE_FOLDER
from hindcast.events.jetstream.broker import HOST, BrokerPlan, PortTaken, prepare

STATE = "broker.json"
START_S = 30.0
"""A server reads its whole store before it answers."""
STOP_S = 10.0
LOCK_S = 45.0
"""Another command may be starting a broker and then stopping it."""
POLL_S = 0.05
GREETING_S = 2.0
CREATED_WITHIN_S = 2.0
"""How far two readings of one start time in unix seconds may differ."""


class BrokerState(msgspec.Struct, frozen=True, kw_only=True):
    """Content of `broker.json`."""

    port: int
    pid: int
    """Process that runs the broker: `bus`, which restarts the server when it dies, or a temporary server itself."""
    passing: bool = False
    """Whether it is temporary: started for a command, and stopped by the last command that uses it."""
    began: float = 0.0
    """When the process began, by `process_began`: the number alone may have been given to another."""
    created: float = 0.0
    """In notes of older versions: when the process began, in unix seconds."""


def noted_broker(home: Path) -> BrokerState | None:
    """The broker recorded in `broker.json`, running or not; None if there is none."""
    try:
        return convert(read_json(home / STATE), BrokerState)
    except msgspec.ValidationError:
        return None


def running_broker(home: Path) -> BrokerState | None:
    """The broker recorded in `broker.json` if its process exists; else None."""
    state = noted_broker(home)
    if state is None:
        return None
    return state if _is_noted(state) and pid_alive(state.pid) else None


def _is_noted(state: BrokerState) -> bool:
    """Whether the process of that number is the one that was noted, and not a later one."""
    if state.began:
        return state.began == process_began(state.pid)
    try:
        return abs(float(psutil.Process(state.pid).create_time()) - state.created) < CREATED_WITHIN_S
    except psutil.Error:
        return False


def note_broker(home: Path, *, port: int, pid: int, passing: bool = False) -> BrokerState:
    """Record which broker serves this home."""
    state = BrokerState(port=port, pid=pid, passing=passing, began=process_began(pid) or 0.0)
    write_json(home / STATE, msgspec.to_builtins(state))
    return state


@asynccontextmanager
async def ensure_broker(home: Path, *, port: int = 0) -> AsyncIterator[str]:
    """Yield the address of this home's broker, which answers until the block ends. Starts one if none runs.

    Raises:
        BrokerUnreachable: it does not answer, or did not start in time.
        PortTaken: the fixed port belongs to another program.

    """
    thread = ThreadPoolExecutor(1, thread_name_prefix="broker")
    taking = thread.submit(_Lease.take, home, port)
    thread.shutdown(wait=False)
    try:
        lease = await asyncio.wrap_future(taking)
    except asyncio.CancelledError:
        taking.add_done_callback(_give_back)  # the thread still runs and may start a broker
        raise
    try:
        yield f"nats://{HOST}:{lease.state.port}"
    finally:
        await asyncio.to_thread(lease.give_back)


def plan_broker(home: Path, *, port: int) -> BrokerPlan:
    """Plan how the permanent broker is started and restarted. For the process that holds `bus.lock`.

    A temporary broker is stopped first. Port 0: the last port, so that connected clients find it again, else any free one.

    Raises:
        PortTaken: the fixed port belongs to another program.

    """
    with _locked(home):
        state = running_broker(home)
        if state is not None and state.passing:
            _stop(state)
        plan = _plan(home, port)
        note_broker(home, port=plan.port, pid=os.getpid())
        return plan


@contextmanager
def stopped_broker(home: Path) -> Iterator[None]:
    """Keep this home's store without a server during the block; stops a temporary one first. Blocking.

    Raises:
        BrokerUnreachable: a system runs in this home.

    """
    with _locked(home):
        state = running_broker(home)
        if state is not None and not state.passing:
            raise BrokerUnreachable(f"a system runs in {home} (pid {state.pid}). Stop it first.")
        if state is not None:
            _stop(state)
        yield


class _Lease:
    """One command's use of the broker."""

    def __init__(self, home: Path, users: int, state: BrokerState) -> None:
        self.state = state
        self._home = home
        self._users = users

    @classmethod
    def take(cls, home: Path, port: int) -> Self:
        """Find the broker or start one."""
        home.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        users = os.open(home / "broker.users", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            with _locked(home):
                fcntl.flock(users, fcntl.LOCK_SH)  # first: the watchdog stops a broker without users
                state = running_broker(home) or _start(home, port)
                if not greets(state.port, within_s=START_S):
                    raise BrokerUnreachable(
                        f"the broker of {home} (pid {state.pid}) has not answered on port {state.port} for {START_S:g} s. "
                        "Stop that process and try again."
                    )
        except BaseException:
            os.close(users)
            raise
        return cls(home, users, state)

    def give_back(self) -> None:
        """Stop the broker if it is temporary and has no other user."""
        try:
            fcntl.flock(self._users, fcntl.LOCK_UN)
            if not self.state.passing:
                return
            with _locked(self._home):
                state = running_broker(self._home)
                if state is not None and state.passing and try_lock(self._users):
                    _stop(state)
        finally:
            os.close(self._users)


def _give_back(taking: "Future[_Lease]") -> None:
    if not taking.cancelled() and taking.exception() is None:
        taking.result().give_back()


def greets(port: int, *, within_s: float) -> bool:
    """Whether a NATS server greets on this port within the time."""
    deadline = time.monotonic() + within_s
    while True:
        with suppress(OSError), socket.create_connection((HOST, port), timeout=GREETING_S) as connection:
            if connection.recv(5) == b"INFO ":
                return True
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)


def _start(home: Path, port: int) -> BrokerState:
    plan = _plan(home, port)
    log = str(home / "broker.log")
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    command = [sys.executable, "-I", "-S", broker_watchdog.__file__, *plan.command()]
    pid = os.posix_spawn(  # no Popen object, which would kill or reap the server when this command ends
        command[0],
        command,
        {**os.environ, HOME_VARIABLE: str(home)},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, append, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    state = note_broker(home, port=plan.port, pid=pid, passing=True)
    if not greets(plan.port, within_s=START_S):
        _stop(state)
        raise BrokerUnreachable(
            f"the broker was started and did not answer on port {plan.port} within {START_S:g} s. Its own words are in {log}."
        )
    return state


def _plan(home: Path, port: int) -> BrokerPlan:
    """Plan for the fixed port, else the last port, else any free one."""
    noted = noted_broker(home)
    if port or noted is None:
        return prepare(home, port=port)
    try:
        return prepare(home, port=noted.port)
    except PortTaken:
        return prepare(home, port=0)


def _stop(state: BrokerState) -> None:
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(state.pid)
        for number, patience_s in ((signal.SIGTERM, STOP_S), (signal.SIGKILL, GREETING_S)):
            process.send_signal(number)
            with suppress(psutil.TimeoutExpired):
                process.wait(patience_s)
                return


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    """Hold `broker.lock`: no other process starts or stops this home's broker during the block."""
    deadline = time.monotonic() + LOCK_S
    with _open_lock(home, "broker.lock") as lock:
        while not try_lock(lock):
            if time.monotonic() > deadline:
                raise BrokerUnreachable(
                    f"another process has been starting or stopping the broker of {home} for {LOCK_S:g} s. "
                    "See which processes use that folder, and try again."
                )
            time.sleep(POLL_S)
        yield


def try_lock(handle: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Lock an open file without waiting; returns whether it is locked. `kind`: exclusive or shared."""
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _open_lock(home: Path, name: str) -> Iterator[int]:
    home.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    handle = os.open(home / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield handle
    finally:
        os.close(handle)
