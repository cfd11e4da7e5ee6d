"""Whose an archive's folder is: of one writer at a time, and of nothing but an archive."""

import fcntl
import os
from pathlib import Path

from hindcast.core.errors import ForeignLog
from hindcast.events.archive.errors import ArchiveBusy
from hindcast.events.archive.manifest import NAME, SEGMENTS
from hindcast.events.disk import PRIVATE_FILE

LOCK = "archive.lock"


def hold(folder: Path) -> int:
    """Hold the archive for this process, until it ends.

    Raises:
        ArchiveBusy.

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
    """That nothing but what an interrupted first start leaves is in a folder that is to become an archive."""
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
