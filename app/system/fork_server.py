"""Fork servers: processes that have loaded a role's modules, from which its workers are forked.

    supervisors ──one socket each──> fork server ──fork──> workers

All workers of a system load the same modules, and an actor or the learner needs 4 s of processor time for torch and
transformers. So the first supervisor of a system that needs a worker starts a fork server for its group of roles (`GROUPS`),
the others find it by its socket, and a worker that is started again after a crash has its modules at once. A supervisor that
cannot have one (not Linux, newer code than the server's) starts a new Python instead.

When a supervisor's end of its connection closes, its worker is killed. A fork server without connections ends; when it ends,
its workers are killed. `forked_workers` is the supervisors' side.

Nothing may run in the server that a fork would break: it starts no thread, no computation and no GPU context.
"""

import importlib
import os
import selectors
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NoReturn

import msgspec
from setproctitle import setproctitle

from hindcast.app.revision import is_code_newer_than
from hindcast.app.system import worker
from hindcast.app.system.forked_workers import MESSAGE_BYTES, NVML_CHECK, ForkAnswer, ForkRequest
from hindcast.app.system.supervisor import die_with_parent
from hindcast.core.fast_import import loading
from hindcast.core.structs import decode_msgpack

GROUPS: Mapping[str, tuple[str, ...]] = {
    "plain": (
        "hindcast.app.bootstrap",
        "hindcast.actors.curriculum.role",
        "hindcast.actors.environments.store.server",
        "hindcast.actors.judges.role",
        "hindcast.app.page.application",
        "hindcast.app.page.prometheus",
        "hindcast.app.runs.folded_read_model",
        "hindcast.app.runs.recipe_change",
        "hindcast.app.system.judges",
        "hindcast.storage.readmodel.projector",
    ),
    "torch": (
        "hindcast.app.bootstrap",
        "hindcast.actors.engines.in_process",
        "hindcast.actors.environments.browser",
        "hindcast.actors.episodes.actor",
        "hindcast.app.runs.open_log",
        "hindcast.app.system.learner_ranks",
        "hindcast.app.system.policy_servers",
        "hindcast.learner.loop",
    ),
}
"""Group -> modules that its fork server loads: those that its roles load under any settings."""


STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Sent to every process at a machine's shutdown. The server ends after its workers, when their supervisors have ended."""


def _run_worker(request: ForkRequest) -> NoReturn:
    setproctitle(f"hindcast {request.name}")
    if numpy_random := sys.modules.get("numpy.random"):
        numpy_random.seed()  # workers would draw the same numbers; Python's own generator does this at a fork
    sys.argv = ["worker", request.role, request.name]
    worker.leave(worker.main())


class ForkServer:
    """The server's loop."""

    def __init__(
        self, listener: socket.socket, *, began: float, run: Callable[[ForkRequest], NoReturn] = _run_worker
    ) -> None:
        """`began`: when the server began to load its modules, in unix seconds. `run`: what a forked process does."""
        self._listener = listener
        self._began = began
        self._run = run
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        self._workers: dict[socket.socket, int | None] = {}
        """Connection -> its running worker."""
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number in STOP_SIGNALS:
            signal.signal(number, lambda _number, _frame: None)

    def serve(self) -> None:
        """Fork workers until the last connection has ended."""
        while True:
            for key, _ in self._selector.select():
                key.data()
            if not self._workers:
                return

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        self._workers[connection] = None
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._read_request(connection))

    def _read_request(self, connection: socket.socket) -> None:
        try:
            message, files, _, _ = socket.recv_fds(connection, MESSAGE_BYTES, 2)
        except ConnectionError:
            message, files = b"", []
        try:
            if message:
                self._fork(connection, decode_msgpack(message, ForkRequest), files)
            else:
                self._disconnect(connection)
        except (
            OSError,
            ValueError,
            msgspec.MsgspecError,
        ) as error:  # running workers must not end with one request
            _send(connection, ForkAnswer(refused=f"{type(error).__name__}: {error}"))
        finally:
            for file in files:
                os.close(file)

    def _fork(self, connection: socket.socket, request: ForkRequest, files: list[int]) -> None:
        if is_code_newer_than(self._began):
            _send(connection, ForkAnswer(refused="the fork server has loaded older code"))
            return
        server = os.getpid()
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)  # a stop in these moments is for the worker
        try:
            pid = os.fork()
            if pid == 0:
                self._run_as_worker(request, files, server)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        try:
            ended = os.pidfd_open(pid)
        except OSError:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        self._workers[connection] = pid
        self._selector.register(
            ended, selectors.EVENT_READ, lambda: self._reap_worker(connection, pid, ended)
        )
        _send(connection, ForkAnswer(pid=pid))

    def _reap_worker(self, connection: socket.socket, pid: int, ended: int) -> None:
        self._selector.unregister(ended)
        os.close(ended)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if connection in self._workers:
            self._workers[connection] = None
            _send(connection, ForkAnswer(status=status))

    def _disconnect(self, connection: socket.socket) -> None:
        """Forget a supervisor that has ended, and kill its worker with all that this has started."""
        self._selector.unregister(connection)
        connection.close()
        pid = self._workers.pop(connection)
        if pid is not None:
            with suppress(OSError):
                os.killpg(pid, signal.SIGKILL)

    def _run_as_worker(self, request: ForkRequest, files: list[int], server: int) -> NoReturn:
        """Turn this forked process into the worker."""
        status = 1
        try:
            os.setsid()
            die_with_parent()
            if os.getppid() != server:
                os._exit(status)
            for number in STOP_SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
            for output, file in enumerate(files, start=1):
                os.dup2(file, output)
                os.close(file)
            for key in list(self._selector.get_map().values()):  # sockets, and files of processes
                os.close(key.fd)
            self._selector.close()
            os.environb.clear()
            os.environb.update(request.environment)
            self._run(request)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)


def _send(connection: socket.socket, answer: ForkAnswer) -> None:
    with suppress(OSError):  # a supervisor that has ended is noticed by its connection
        connection.send(msgspec.msgpack.encode(answer))


def close_inherited(listener: int) -> None:
    """Close the files that the supervisor passes on to every program that it starts; workers would hold them, too.

    Native libraries open such files: without close-on-exec.
    """
    os.closerange(3, listener)
    os.closerange(listener + 1, os.sysconf("SC_OPEN_MAX"))


def main() -> None:
    """Serve the group and the listening socket on the command line."""
    group, number = sys.argv[1:3]
    close_inherited(int(number))
    os.close(os.pidfd_open(os.getpid()))  # fails before the modules are loaded where the system has none
    listener = socket.socket(fileno=int(number))
    # now, because it finds its room behind the first environment; workers would be shown with the server's command
    setproctitle(f"hindcast fork server for {group} workers")
    with loading():
        for module in GROUPS[group]:
            importlib.import_module(module)
    for name in NVML_CHECK:
        os.environ.pop(name, None)
    ForkServer(listener, began=worker.BEGAN).serve()


if __name__ == "__main__":
    main()
