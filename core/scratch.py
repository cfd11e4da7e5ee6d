"""Temporary folders that a killed process does not leave for long: each new one removes abandoned ones.

A folder lies in the system's temporary folder, readable by its owner only. Its process holds a lock on it, which the kernel
releases however the process ends.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "hindcast-tmp-"
"""Short, because Chromium makes a socket inside, and a socket's path has at most 107 bytes."""
MOST_REMOVED = 32
"""Most abandoned folders that one call removes; a browser's folder holds a few hundred files."""


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make a temporary folder of this process and remove it at the end of the block."""
    remove_abandoned()
    lock, folder = _make()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def remove_abandoned() -> int:
    """Remove at most `MOST_REMOVED` folders whose processes have ended; return how many."""
    removed = 0
    for folder in sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}*")):
        lock = _lock(folder)
        if lock is not None:
            shutil.rmtree(folder, ignore_errors=True)  # the next call removes late writes of a dying browser
            os.close(lock)
            removed += 1
        if removed == MOST_REMOVED:
            break
    return removed


def _make() -> tuple[int, Path]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        lock = _lock(folder)
        if lock is not None:
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(lock), folder.stat()):
                    return lock, folder
            os.close(lock)  # another process removed it as abandoned before it was locked


def _lock(folder: Path) -> int | None:
    """Lock the folder and return the descriptor; None if its process lives, it is not ours, or it is gone."""
    try:
        file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if os.fstat(file).st_uid == os.geteuid():
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
    except OSError:
        pass
    os.close(file)
    return None
