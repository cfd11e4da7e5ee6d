"""Keeps one role's worker alive, and ends only on SIGTERM or SIGINT. One supervisor is one Procfile line.

honcho stops everything when any of its children ends, so a crash must never reach it: a dead worker is started again
after a back-off. The worker runs in its own session, because honcho signals whole process groups: otherwise the browser
would die before the actor could record the end of its episodes.

`python -m hindcast.app.system ROLE` runs it; honcho names the instance in HONCHO_PROCESS_NAME.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from select import select
from threading import Thread
from typing import IO, Protocol

from hindcast.app.system.logs import style_of, tell
from hindcast.app.system.processes import crash_reason, pid_alive, report

STOP_AFTER_S = 4.0
"""honcho kills its children 5 s after the first of them has ended."""
KILLED_S = 1.0
"""How long a killed worker is waited for."""
HEALTHY_S = 30.0
"""A worker that lived this long resets the back-off."""
BACKOFF_S = (0.3, 1.0, 2.0, 5.0, 10.0)
POLL_S = 0.25
"""How often a supervisor looks at its worker; a signal ends the pause."""
PR_SET_PDEATHSIG = 1
"""See prctl(2)."""
RESTARTS = "HINDCAST_RESTARTS"
"""Environment variable with the number of a worker's restarts."""
STARTER = "HINDCAST_STARTER"
"""Environment variable with the id of the process that everything stops with: `hindcast start`, or a benchmark above it."""
MACHINE = "HINDCAST_MACHINE"
"""Environment variable with the name of a machine that has joined a run; its processes' names contain it."""
HOPELESS = 2
"""Exit status of a worker that no restart can help: wrong settings, a foreign log, a damaged model."""
STOPPED = 3
"""Exit status of a worker that a signal stopped. If its supervisor did not send it, the worker is started again."""
RENEWED = 256
"""Used as exit status when the worker's watch asked for a new worker."""


def die_with_parent() -> None:
    """Ask Linux to kill this process when its parent ends; elsewhere this does nothing."""
    _signal_when_orphaned(signal.SIGKILL)


def stop_with_parent() -> None:
    """Ask Linux for SIGTERM when the parent ends: for a process that has others to stop."""
    _signal_when_orphaned(signal.SIGTERM)


def _signal_when_orphaned(number: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)


class Worker(Protocol):
    """A running worker, a `subprocess.Popen` or one that a fork server has forked."""

    @property
    def pid(self) -> int:
        """Number of the process, and of its session and process group."""
        ...

    def poll(self) -> int | None:
        """The exit status, negative if a signal ended it; None while it runs."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """The exit status at its end. Raises subprocess.TimeoutExpired after `timeout` seconds."""
        ...

    def terminate(self) -> None:
        """Send SIGTERM."""
        ...


class WorkerWatch(Protocol):
    """Listens to a worker's output and may ask for a restart."""

    def heard(self, line: str) -> None:
        """Read one line of its standard error. Called from a thread."""
        ...

    def wants_renewal(self) -> bool:
        """Whether to restart the worker now."""
        ...


class Supervisor:
    """Starts, restarts and stops one worker."""

    def __init__(
        self,
        name: str,
        command: Callable[[], Sequence[str]],
        *,
        folder: Path,
        fork: Callable[[Mapping[str, str]], Worker | None] = lambda _environment: None,
        watch: WorkerWatch | None = None,
        lasting: bool = False,
    ) -> None:
        """`fork`: makes the worker from an environment, faster than `command`; None where it cannot. `lasting`: the worker never
        finishes, so it is always started again, whatever its exit status.
        """
        self.name = name
        self.folder = folder
        self.restarts = 0
        self._command = command
        self._fork = fork
        self._watch = watch
        self._lasting = lasting
        self._stop_asked = False
        self._ended_by = ""
        self._starter = int(os.environ.get(STARTER, "0"))
        self._worker: Worker | None = None
        self._signals: list[int] = []
        """A pipe that is readable once a signal has come."""

    def catch_signals(self) -> None:
        """Treat SIGTERM and SIGINT as requests to stop from now on."""
        readable, writable = os.pipe()
        os.set_blocking(writable, False)
        signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
        self._signals = [readable]
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._stop)

    def _stop(self, _number: int, _frame: object) -> None:
        self._stop_asked = True  # no lock: one signal may interrupt the handling of another

    def is_stopping(self) -> bool:
        """Whether a stop was asked for."""
        return self._stop_asked or self._is_orphaned()

    def _is_orphaned(self) -> bool:
        """Whether the `hindcast start` above honcho is gone: a killed honcho passes no signal on."""
        return self._starter != 0 and not pid_alive(self._starter)

    def run(
        self,
        *,
        on_started: Callable[[int], int] = lambda _pid: 0,
        before_stop: Callable[[], None] = lambda: None,
    ) -> int:
        """Keep the worker alive until a stop is asked for; returns the exit status for honcho.

        `on_started` is called with the pid after each start; a status other than 0 from it ends everything.
        `before_stop` may wait for other roles before the worker is stopped.
        """
        attempt = 0
        while not self.is_stopping():
            began = time.monotonic()
            pid = self._start()
            if pid is None:
                break
            status = on_started(pid)
            if status != 0:
                self._terminate()
                return status
            status = self._wait()
            if self.is_stopping():
                break
            self._reap()
            if status == RENEWED:
                self.restarts += 1
                continue
            if status == HOPELESS and not self._lasting:
                self.say("failed", "no restart can help; see its message above")
                return HOPELESS
            if status == 0 and not self._lasting:
                self.idle()
                return 0
            attempt = 0 if time.monotonic() - began > HEALTHY_S else attempt + 1
            pause = BACKOFF_S[min(attempt, len(BACKOFF_S) - 1)]
            self.restarts += 1
            assert self._worker is not None
            reason = crash_reason(self.folder, self.name, pid=self._worker.pid)
            self._ended_by = reason or f"exit status {status}"
            self.say("restarting", f"{self._ended_by}; again in {pause} s")
            self._tell(f"{self.name} ended with status {status}; starting it again in {pause} s")
            self._sleep(pause)
        before_stop()
        self._terminate()
        self.say("stopped", "")
        return 0

    def _start(self) -> int | None:
        """Start a worker; returns its number, or None if a stop was asked for meanwhile."""
        environment = {**os.environ, RESTARTS: str(self.restarts)}
        worker = self._fork(environment)
        if worker is None and self.is_stopping():
            return None
        self._worker = worker or self._execute(environment)
        self.say("starting", self._ended_by)
        return self._worker.pid

    def _execute(self, environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
        worker = subprocess.Popen(
            list(self._command()),
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE if self._watch else None,
            preexec_fn=die_with_parent,
            env=environment,
        )
        if self._watch is not None:
            assert worker.stderr is not None
            Thread(target=_pass_on, args=(worker.stderr, self._watch), daemon=True).start()
        return worker

    def _wait(self) -> int:
        assert self._worker is not None
        while not self.is_stopping():
            status = self._worker.poll()
            if status is not None:
                return status
            if self._watch is not None and self._watch.wants_renewal():
                self._terminate()
                return RENEWED
            self.pause()
        return 0

    def pause(self) -> None:
        """Wait for `POLL_S`, or until a stop is asked for."""
        if not self._stop_asked:
            select(self._signals, [], [], POLL_S)

    def idle(self) -> None:
        """Stay alive without a worker, because the end of this process would stop all the others."""
        if not self.is_stopping():
            self.say("finished", "")
        while not self.is_stopping():
            self.pause()

    def _sleep(self, pause_s: float) -> None:
        until = time.monotonic() + pause_s
        while not self.is_stopping() and time.monotonic() < until:
            self.pause()

    def _terminate(self) -> None:
        worker = self._worker
        if worker is None:
            return
        if worker.poll() is None:
            worker.terminate()
            try:
                worker.wait(STOP_AFTER_S)
            except subprocess.TimeoutExpired:
                self._tell(f"{self.name} did not stop within {STOP_AFTER_S} s and is killed")
        self._reap()

    def _tell(self, text: str) -> None:
        tell(style_of(self.folder.parent), self.name, text, level="warning")

    def _reap(self) -> None:
        """Kill what is left of the worker's session: browsers, drivers."""
        if self._worker is not None:
            try:
                os.killpg(self._worker.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                return
            with suppress(subprocess.TimeoutExpired):  # a fork server that stands still reports no end
                self._worker.wait(KILLED_S)

    def say(self, state: str, detail: str) -> None:
        """Record the worker's state for people."""
        pid = self._worker.pid if self._worker else os.getpid()
        report(self.folder, name=self.name, pid=pid, state=state, restarts=self.restarts, detail=detail)


def _pass_on(stream: IO[bytes], watch: WorkerWatch) -> None:
    """Repeat a worker's output, and pass each line to its watch."""
    with stream:
        for line in stream:
            with suppress(OSError):  # without a reader, the next write would kill the worker
                sys.stderr.buffer.write(line)
                sys.stderr.buffer.flush()
            watch.heard(line.decode(errors="replace"))


def instance_name(name: str, *, machine: str) -> str:
    """Name of a process in the log: `actor.1` as honcho names it; `actor.<machine>-1` on a machine that has joined a run."""
    role, _, number = name.partition(".")
    return f"{role}.{machine}-{number}" if machine else name
