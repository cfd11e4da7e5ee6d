"""honcho and all processes under it, as one object to start, watch and stop.

Waits until every part answers (`READY_S`). A stop waits `STOP_S` for honcho, then kills it.

honcho, and everything with it, ends when its output cannot be written. So honcho writes into a pipe, and a thread reads
the pipe and writes rotated files (`KeptOutput`); on a full disk the output is lost.
"""

import asyncio
import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from logging import LogRecord, makeLogRecord
from logging.handlers import RotatingFileHandler
from pathlib import Path
from threading import Thread
from typing import IO

from hindcast.app.system.home import make_home
from hindcast.app.system.logs import style_of
from hindcast.app.system.processes import FAILURE, READY, list_processes, pid_alive, read_json
from hindcast.app.system.supervisor import MACHINE, STARTER, instance_name, stop_with_parent
from hindcast.core.errors import HindcastError

BUS_LOCK = "bus.lock"
PROCFILE = Path(__file__).parent / "procfiles" / "Procfile"
PROCFILE_VLLM = PROCFILE.with_name("Procfile.vllm")
"""Procfile with the role that runs vLLM servers."""
POLICY_SERVER = "policy_server"
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
"""Limit from the start of honcho until every part has answered, policy servers excluded."""
STOP_S = 12.0
"""honcho kills after 5 s; the rest is for its own end and the broker's."""
LAST_WORDS_S = 1.0
"""How long writing the processes' last output to the file may take."""
POLL_S = 0.1
STARTER_POLL_S = 1.0
KEPT_BYTES = 8 * 1024 * 1024
"""Size limit of each file."""
KEPT_OLDER = 3
"""Older files that are kept."""
LAST_LINES = 15
LONGEST_LINE_BYTES = 64 * 1024
"""Longer lines are split, so that a program that prints no line end cannot fill the memory."""


class StartFailed(HindcastError):
    """A part of the system did not start."""


@contextlib.contextmanager
def holding(home: Path) -> Iterator[None]:
    """Lock the home during the block: nothing else starts, joins or repairs there.

    Raises:
        StartFailed: another process holds the lock.

    """
    make_home(home)
    with (home / BUS_LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StartFailed(
                f"another system runs in {home}, or a command records, imports or repairs there. Stop that first, or set "
                "HINDCAST_HOME to another folder."
            ) from None
        yield


def check_home_is_free(home: Path) -> None:
    """Raise StartFailed when a system already runs in this home."""
    with holding(home):
        pass


def absolute_python_path(environment: Mapping[str, str]) -> dict[str, str]:
    """PYTHONPATH for processes in another folder: plugins of a relative folder are found there, too. Empty if it is not set."""
    given = environment.get("PYTHONPATH")
    if not given:
        return {}
    return {"PYTHONPATH": os.pathsep.join(os.path.abspath(folder) for folder in given.split(os.pathsep))}


class System:
    """honcho and all processes under it."""

    def __init__(
        self, home: Path, counts: Mapping[str, int], *, machine: str = "", serving_s: float = 0.0
    ) -> None:
        """`counts`: number of processes of each role. `machine`: part of their names on a machine that has joined a run.
        `serving_s`: how long policy servers may take to start.
        """
        self.home = home
        self.machine = machine
        self._counts = {role: count for role, count in counts.items() if count}
        self._procfile = PROCFILE_VLLM if POLICY_SERVER in self._counts else PROCFILE
        self.ready_s = READY_S + serving_s
        """Limit from the start of honcho until every part has answered."""
        self.output = home / "honcho.log"
        self._honcho: subprocess.Popen[bytes] | None = None
        self._keeping: KeptOutput | None = None

    def start(self) -> None:
        """Start honcho in its own session, so that Ctrl-C reaches only this process."""
        environment = {
            # threads of an operation that wait for one another spin by default, on cores that browsers and actors need
            "OMP_WAIT_POLICY": "PASSIVE",
            **os.environ,
            **absolute_python_path(os.environ),
            "HINDCAST_HOME": str(self.home),
            "PYTHON": sys.executable,
            "PYTHONUNBUFFERED": "1",
            STARTER: str(os.getpid()),
            MACHINE: self.machine,
        }
        processes = self.home / "processes"
        for entry in (
            *processes.glob("*.json"),
            *processes.glob(".*.json.*"),
        ):  # half-written files of killed processes
            entry.unlink()
        for stale in (READY, FAILURE):
            (self.home / stale).unlink(missing_ok=True)
        concurrency = ",".join(f"{role}={count}" for role, count in self._counts.items())
        prefix = ["--no-prefix"] if style_of(self.home).is_json else []
        self._honcho = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "honcho",
                "-f",
                str(self._procfile),
                "start",
                "-c",
                concurrency,
                *prefix,
                *self._counts,
            ],
            cwd=self.home,
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
        """Names of the processes."""
        return {
            instance_name(f"{role}.{n + 1}", machine=self.machine)
            for role, count in self._counts.items()
            for n in range(count)
        }

    def waiting_for(self) -> set[str]:
        """Names of the parts that have not answered yet."""
        ready = {
            entry.name
            for entry in list_processes(self.home / "processes")
            if entry.state in ("ready", "finished")
        }
        return self.names() - ready

    def check(self) -> None:
        """Raise StartFailed with the end of honcho's output if honcho has ended by itself."""
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
        """Ask honcho to stop everything and wait for it; then kill what is left."""
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


async def wait_until_ready(
    system: System,
    say: Callable[[str], None],
    stop: asyncio.Event,
    *,
    changes: Callable[[], list[str]],
) -> None:
    """Return when every part has answered, or a stop is asked for. `changes`: lines about restarts since its last call."""
    began = time.monotonic()
    missing = system.names()
    while missing and not stop.is_set():
        system.check()
        for line in changes():
            say(line)
        now = system.waiting_for()
        for name in sorted(missing - now):
            say(f"{name} is ready after {time.monotonic() - began:.1f} s")
        missing = now
        if time.monotonic() - began > system.ready_s:
            raise StartFailed(
                f"after {system.ready_s:.0f} s these parts have not answered: {', '.join(sorted(missing))}. See {system.output}."
            )
        await asyncio.sleep(POLL_S)


def stop_with_starter(stop: asyncio.Event) -> None:
    """Set `stop` once the program that started this command (a benchmark) has ended."""
    starter = int(os.environ.get(STARTER, "0"))

    def look() -> None:
        if not pid_alive(starter):
            stop.set()
        else:
            asyncio.get_running_loop().call_later(STARTER_POLL_S, look)

    if starter:
        look()


class KeptOutput(Thread):
    """Thread that appends a stream to a file until it ends, and keeps the last lines in memory."""

    def __init__(
        self, stream: IO[bytes], place: Path, *, kept_bytes: int = KEPT_BYTES, kept_older: int = KEPT_OLDER
    ) -> None:
        """Prepare the thread; `start` runs it."""
        super().__init__(daemon=True)
        self._stream = stream
        self._file = _Lines(place, kept_bytes=kept_bytes, kept_older=kept_older)
        self._last: deque[str] = deque(maxlen=LAST_LINES)

    def last_lines(self) -> list[str]:
        """The last lines of this program, without output of other programs in the same file."""
        return list(self._last)

    def run(self) -> None:
        """Read until the stream ends."""
        lost = 0
        with self._stream:
            for part in iter(lambda: self._stream.readline(LONGEST_LINE_BYTES), b""):
                line = part.decode(errors="surrogateescape")
                self._last.append(part.decode(errors="replace").rstrip("\n"))
                word = f"({lost} lines lost: there was no room)\n{line}" if lost else line
                try:
                    self._file.append(word)
                except OSError:  # most likely a full disk
                    lost += 1
                else:
                    lost = 0
        self._file.close()


def keep_output(stream: IO[bytes], place: Path) -> KeptOutput:
    """Append everything from `stream` to a file until it ends, in a thread."""
    kept = KeptOutput(stream, place)
    kept.start()
    return kept


class _Lines(RotatingFileHandler):
    """Rotating file handler for lines that are already formatted."""

    terminator = ""

    def __init__(self, place: Path, *, kept_bytes: int, kept_older: int) -> None:
        super().__init__(
            place,
            maxBytes=kept_bytes,
            backupCount=kept_older,
            encoding="utf-8",
            errors="surrogateescape",
            delay=True,
        )

    def append(self, line: str) -> None:
        """Write one line. Raises OSError if the disk is full; the file is then opened again for the next line."""
        self.emit(makeLogRecord({"msg": line}))

    def handleError(self, record: LogRecord) -> None:
        """Re-raise the error of a failed write. logging calls this inside its `except`."""
        with suppress(OSError):
            self.close()
        raise
