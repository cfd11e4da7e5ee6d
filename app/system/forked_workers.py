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
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec

from hindcast.app.system.supervisor import POLL_S, RESTARTS
from hindcast.core.structs import decode_json
from hindcast.events.disk import PRIVATE_FILE

TORCH_ROLES = ("prepare", "actor", "learner")
SERVER = (sys.executable, "-P", "-m", "hindcast.app.system.fork_server")
"""Command of a fork server, before its group and its listening socket."""
OF_ONE_WORKER = ("HONCHO_PROCESS_NAME", "PORT", RESTARTS)
"""Environment variables in which the workers of a system differ."""
MESSAGE_BYTES = 128 * 1024
"""Longest message. The longest contains a whole environment."""
TRIES = 3
"""How often a supervisor looks for a server or starts one: a server without connections ends, also while one is being made."""
NO_CUDA_CONTEXT = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
"""Makes torch look for GPUs without opening one, after which a forked process could not use it."""


class ForkRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that a supervisor wants."""

    role: str
    name: str
    environment: dict[str, str]


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
        """The exit status; None while the worker runs. Of a worker that died with its server: that of a killed one."""
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
        self._role = role
        self._name = name
        self._is_stopping = is_stopping
        self._connection: socket.socket | None = None

    def start(self, environment: Mapping[str, str]) -> ForkedWorker | None:
        """Have a worker forked; None if the caller must start a new Python instead."""
        if sys.platform != "linux":
            return None
        request = msgspec.json.encode(
            ForkRequest(role=self._role, name=self._name, environment=dict(environment))
        )
        for _ in range(TRIES):
            if self._is_stopping():
                return None
            try:
                answer = self._ask(request)
            except OSError:
                answer = None
            if answer is None:
                self.close()
            elif answer.refused:
                return None
            else:
                assert self._connection is not None
                return ForkedWorker(answer.pid, self._connection, on_lost=self.close)
        return None

    def close(self) -> None:
        """Give the connection up. The server kills the worker if it still runs."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, request: bytes) -> ForkAnswer | None:
        if self._connection is None:
            self._connection = connect_or_start(self._folder, group_of(self._role))
        socket.send_fds(self._connection, [request], [sys.stdout.fileno(), sys.stderr.fileno()])
        while not _is_readable(self._connection, POLL_S):  # the server may be loading its modules
            if self._is_stopping():
                return None
        return _receive(self._connection)


def connect_or_start(folder: Path, group: str) -> socket.socket:
    """A connection to this system's fork server, which is started if there is none.

    A server is for one environment (`_key`), because modules read it while they are loaded.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with ExitStack() as stack:
        lock = stack.enter_context((folder / "fork_servers.lock").open("w"))
        fcntl.flock(lock, fcntl.LOCK_EX)
        name = f"fork_server-{group}-{_key(os.environ)}.sock"
        # a path through the open folder, because the address of a socket has at most 107 bytes
        handle = os.open(folder, os.O_RDONLY)
        stack.callback(os.close, handle)
        address = f"/proc/self/fd/{handle}/{name}"
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.connect(address)
        except (FileNotFoundError, ConnectionRefusedError):
            for left in folder.glob(f"fork_server-{group}-*.sock"):  # a server that runs keeps its clients
                left.unlink()
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
                listener.bind(address)
                (folder / name).chmod(PRIVATE_FILE)
                listener.listen(64)
                _start_server(listener, group, log=folder / f"fork_server-{group}.log")
            connection.connect(address)
        except OSError:
            connection.close()
            raise
        return connection


def _start_server(listener: socket.socket, group: str, *, log: Path) -> None:
    """Start a server that outlives this process, in a session of its own: honcho signals whole groups, and waits for its pipes."""
    listener.set_inheritable(True)
    write = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    os.posix_spawn(
        sys.executable,
        [*SERVER, group, str(listener.fileno())],
        {**os.environ, **NO_CUDA_CONTEXT},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), write, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )


def _key(environment: Mapping[str, str]) -> str:
    """The same for all workers of a system."""
    shared = {name: value for name, value in environment.items() if name not in OF_ONE_WORKER}
    return hashlib.sha256(msgspec.json.encode(shared, order="sorted")).hexdigest()[:16]


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
    return decode_json(message, ForkAnswer) if message else None
