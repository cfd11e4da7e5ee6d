"""Lock of an archive's folder: one writer at a time, and nothing else in the folder."""

import fcntl
import os
from pathlib import Path

from hindcast.core.errors import ForeignLog
from hindcast.events.archive.errors import ArchiveBusy
from hindcast.events.archive.manifest import NAME, SEGMENTS
from hindcast.events.disk import PRIVATE_FILE

LOCK = "archive.lock"


def hold(folder: Path) -> int:
    """Lock the archive for this process; return the lock's descriptor.

    Raises:
        ArchiveBusy: another process holds it.

    """
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(lock, 20, 0).decode(errors="replace").strip() or "another process"
        os.close(lock)
        raise ArchiveBusy(
            f"another process (pid {holder}) writes the archive in {folder}; two would ruin it. Wait for it or stop it, or "
            "choose another folder."
        ) from error
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)
    return lock


def require_empty(folder: Path) -> None:
    """Require that a new archive's folder is empty, except for the files of an interrupted first start.

    Raises:
        ForeignLog: it holds something else.

    """
    if not folder.exists():
        return
    ours = {LOCK, SEGMENTS, f".{NAME}.new"}
    foreign = sorted(path.name for path in folder.iterdir() if path.name not in ours)
    if foreign:
        raise ForeignLog(
            f"{folder} is no archive and not empty: it holds {', '.join(foreign[:3])}. Choose another folder."
        )
    if any((folder / SEGMENTS).glob("*")):
        raise ForeignLog(
            f"{folder} holds segments but no {NAME}. Restore it from a copy of the archive, or choose another folder."
        )
