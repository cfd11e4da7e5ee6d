"""Workers that a fork server has forked, as their supervisors see them. See `fork_server`.

A supervisor keeps a connection to the fork server as long as it lives. It sends a `ForkRequest` with its standard output and
error, and is sent the worker's number, and its exit status when it ends.
"""

import fcntl
import hashlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec

from hindcast.app.system.logs import style_of, tell
from hindcast.app.system.supervisor import POLL_S, RESTARTS
from hindcast.core.structs import decode_msgpack
from hindcast.events.disk import PRIVATE_FILE

TORCH_ROLES = ("prepare", "actor", "learner")
SERVER = (sys.executable, "-P", "-m", "hindcast.app.system.fork_server")
"""Command of a fork server, before its group and its listening socket."""
PER_WORKER_VARIABLES = ("HONCHO_PROCESS_NAME", "PORT", RESTARTS)
"""Environment variables in which the workers of a system differ."""
MESSAGE_BYTES = 128 * 1024
"""Longest message. The longest contains a whole environment."""
TRIES = 3
"""How often a supervisor looks for a server or starts one: a server without connections ends, also while one is being made."""
LONGEST_LOAD_S = 150.0
"""How long a supervisor waits for an answer. A server that loads its modules on a busy machine takes a minute."""
NVML_CHECK = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
"""Makes torch look for GPUs without opening one, after which a forked process could not use it."""


class ForkRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that a supervisor wants."""

    role: str
    name: str
    environment: dict[bytes, bytes]
    """Bytes, because a variable need not be text."""


class ForkAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the server says: first the worker's number, or why it cannot start it; then the worker's exit status."""

    pid: int = 0
    refused: str = ""
    status: int | None = None


def group_of(role: str) -> str:
    """The group of a role."""
    return "torch" if role in TORCH_ROLES else "plain"


class ForkedWorker:
    """A worker seen by its supervisor; has those methods of `subprocess.Popen` that a supervisor uses."""

    def __init__(self, pid: int, connection: socket.socket, *, on_lost: Callable[[], None]) -> None:
        self.pid = pid
        self._connection = connection
        self._on_lost = on_lost
        self._status: int | None = None

    def poll(self) -> int | None:
        """The exit status; None while the worker runs.

        `-SIGKILL` if the connection to the server was lost, since the worker ends with it.
        """
        if self._status is None and _is_readable(self._connection, 0):
            self._read()
        return self._status

    def wait(self, timeout: float | None = None) -> int:
        """The exit status, once the worker has ended.

        Raises:
            subprocess.TimeoutExpired: it has not after `timeout` seconds.

        """
        if self._status is None and not _is_readable(self._connection, timeout):
            raise subprocess.TimeoutExpired("worker", timeout or 0.0)
        if self._status is None:
            self._read()
        assert self._status is not None
        return self._status

    def terminate(self) -> None:
        """Ask the worker to stop."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    def _read(self) -> None:
        answer = _receive(self._connection)
        if answer is None or answer.status is None:
            self._on_lost()
            self._status = -signal.SIGKILL
        else:
            self._status = answer.status


class ForkServerClient:
    """A supervisor's way to the fork server of a role. Keeps one connection."""

    def __init__(self, folder: Path, role: str, name: str, *, is_stopping: Callable[[], bool]) -> None:
        """`folder`: of the home's process states; the sockets are there, too. `is_stopping`: no worker is wanted any more."""
        self._folder = folder
        self._group = group_of(role)
        self._role = role
        self._name = name
        self._is_stopping = is_stopping
        self._connection: socket.socket | None = None
        self._servers: list[int] = []
        """Process ids of the servers that this client has started."""
        self._given_up = sys.platform != "linux"

    def start(self, environment: Mapping[str, str]) -> ForkedWorker | None:
        """Have a worker forked; None if it cannot be, or a stop was asked for meanwhile."""
        variables = {os.fsencode(name): os.fsencode(value) for name, value in environment.items()}
        request = msgspec.msgpack.encode(ForkRequest(role=self._role, name=self._name, environment=variables))
        if self._given_up or len(request) > MESSAGE_BYTES:
            return None
        for _ in range(TRIES):
            if self._is_stopping():
                return None
            try:
                answer = self._ask(request)
            except TimeoutError:
                break
            except OSError:
                answer = None
            if answer is not None and answer.pid:
                assert self._connection is not None
                return ForkedWorker(answer.pid, self._connection, on_lost=self.close)
            self.close()
            if answer is not None and answer.refused:
                return None
        self.close()
        if not self._is_stopping():
            self._given_up = True
            tell(
                style_of(self._folder.parent),
                self._name,
                f"no fork server works here, so each worker loads its modules itself; see {self._log}",
                level="warning",
            )
        return None

    def close(self) -> None:
        """Give the connection up. The server kills the worker if it still runs."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def _log(self) -> Path:
        return self._folder / f"fork_server-{self._group}.log"

    def _ask(self, request: bytes) -> ForkAnswer | None:
        """The server's answer; None if it has ended, or a stop was asked for. Raises TimeoutError after `LONGEST_LOAD_S`."""
        if self._connection is None:
            self._connection = self._connect_or_start()
        socket.send_fds(self._connection, [request], [sys.stdout.fileno(), sys.stderr.fileno()])
        until = time.monotonic() + LONGEST_LOAD_S
        while not _is_readable(self._connection, POLL_S):
            if self._is_stopping():
                return None
            if time.monotonic() > until:
                raise TimeoutError
        return _receive(self._connection)

    def _connect_or_start(self) -> socket.socket:
        """A connection to this system's fork server, which is started if there is none.

        A server is for one environment (`_key`), because modules read it while they are loaded.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = f"fork_server-{self._group}-{_key(os.environ)}.sock"
        with ExitStack() as stack:
            lock = stack.enter_context((self._folder / "fork_servers.lock").open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
            # a path through the open folder, because the address of a socket has at most 107 bytes
            folder_fd = os.open(self._folder, os.O_RDONLY)
            stack.callback(os.close, folder_fd)
            below = f"/proc/self/fd/{folder_fd}"
            if (connection := _connected(f"{below}/{name}")) is not None:
                return connection
            for stale in self._folder.glob(f"fork_server-{self._group}-*.sock"):
                if (answering := _connected(f"{below}/{stale.name}")) is None:
                    stale.unlink()
                else:
                    answering.close()
            listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            listener.bind(f"{below}/{name}")
            (self._folder / name).chmod(PRIVATE_FILE)
            listener.listen(socket.SOMAXCONN)
            connection = _connected(f"{below}/{name}")
            self._start_server(listener)
            if connection is None:
                raise ConnectionRefusedError(name)
            return connection

    def _start_server(self, listener: socket.socket) -> None:
        """Start a server that outlives this process, in a session of its own: honcho signals whole groups, and waits for its pipes."""
        for server in self._servers:
            with suppress(ChildProcessError):  # it was waited for before
                os.waitpid(server, os.WNOHANG)
        listener.set_inheritable(True)
        write = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        server = os.posix_spawn(
            sys.executable,
            [*SERVER, self._group, str(listener.fileno())],
            {**os.environ, **NVML_CHECK},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(self._log), write, 0o666),  # the umask restricts it
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
        )
        self._servers.append(server)


def _connected(address: str) -> socket.socket | None:
    """A connection to a server; None if none listens there."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect(address)
    except OSError as error:
        connection.close()
        if isinstance(error, FileNotFoundError | ConnectionRefusedError):
            return None
        raise
    return connection


def _key(environment: Mapping[str, str]) -> str:
    """The same for all workers of a system."""
    shared = {name: value for name, value in environment.items() if name not in PER_WORKER_VARIABLES}
    return hashlib.sha256(repr(sorted(shared.items())).encode()).hexdigest()[:16]


def _is_readable(connection: socket.socket, timeout: float | None) -> bool:
    """Whether there is a message, or the connection has ended, within `timeout` seconds."""
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        return bool(selector.select(timeout))


def _receive(connection: socket.socket) -> ForkAnswer | None:
    """The next answer; None if the server has ended."""
    try:
        message = connection.recv(MESSAGE_BYTES)
    except ConnectionError:
        return None
    return decode_msgpack(message, ForkAnswer) if message else None
