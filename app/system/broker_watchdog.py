"""Start a temporary broker, and stop it when no command uses it any more, even if every command was killed.

`app.system.broker` runs it as a script without any package, since each command that needs the log waits for it:

    python -I -S broker_watchdog.py PROGRAM ARGUMENTS...        (the home is in `HOME_VARIABLE`)

It forks. The parent becomes the server, so that the process which a command starts is the broker itself. The child
watches: commands hold a shared lock on `broker.users`, which the kernel releases when a process ends in any way. When
nobody holds it, the child stops the server under `broker.lock`, so that no command finds a broker that is about to end.
"""

import fcntl
import os
import signal
import sys
import time
from pathlib import Path

HOME_VARIABLE = "HINDCAST_BROKER_HOME"
POLL_S = 0.2
STOP_S = 10.0
"""From SIGTERM to SIGKILL."""
IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
"""Signals sent to the whole process group are for the server; the child ends with it."""


def watch(server: int, home: Path) -> None:
    """Return once the server has ended. The server is our parent, so no other process can take its number meanwhile."""
    lock = os.open(home / "broker.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    users = os.open(home / "broker.users", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    while os.getppid() == server:
        if _try_lock(lock):
            if _try_lock(users):
                _stop(server)
                return
            fcntl.flock(lock, fcntl.LOCK_UN)
        time.sleep(POLL_S)


def _stop(server: int) -> None:
    os.kill(server, signal.SIGTERM)
    deadline = time.monotonic() + STOP_S
    while os.getppid() == server:
        if time.monotonic() > deadline:
            os.kill(server, signal.SIGKILL)
        time.sleep(POLL_S / 4)


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def main() -> None:
    """Become the server; leave a child process that watches it."""
    home = Path(os.environ.pop(HOME_VARIABLE))
    server = os.getpid()
    os.umask(0o077)  # nats-server's files are for their owner alone
    if os.fork() != 0:
        os.execv(sys.argv[1], sys.argv[1:])
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    watch(server, home)


if __name__ == "__main__":
    main()
