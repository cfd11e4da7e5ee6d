"""Back-pressure on disk space: whether the log and the disks of log, blobs and read model have room for new episodes.

These are soft limits, well below the hard ones: running episodes can end, and the events about their end fit. At the hard
limits, publishers wait for a full log (`events.log.publisher`), and every writer waits for a full disk.
"""

import shutil
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from hindcast.app.runs.runs import RunHandle
from hindcast.events.log.joined_log import RunLog
from hindcast.storage.blobs.bucket import is_bucket

SOFT_LIMIT = 0.9
"""Share of `log.max_bytes` from which no new episode is requested."""
RELIEF = 1.25
"""After a halt, this multiple of `storage.min_free_mib` must be free, so that small files do not halt it again."""
MIB = 1024 * 1024


def room_check(handle: RunHandle, log: RunLog) -> Callable[[bool], Awaitable[str]]:
    """The check that the curriculum runs (`actors.curriculum.role.RoomCheck`)."""
    folders = disks_of(handle)

    async def check(halted: bool) -> str:
        fill = await log.fill()
        full = log_shortage(fill.used_bytes, fill.limit_bytes)
        return full or disk_shortage(folders, handle.settings.storage.min_free_mib, halted=halted)

    return check


def disks_of(handle: RunHandle) -> list[Path]:
    """Folders on this machine that the run writes to."""
    folders = [handle.folder]
    if not handle.settings.log.url:
        folders.append(handle.home / "broker")
    blobs = handle.settings.storage.blobs
    if blobs and not is_bucket(blobs):
        folders.append(handle.blobs.folders[0])
    model = handle.read_model()
    try:
        if model.file is not None:
            folders.append(model.file.parent)
    finally:
        model.close()
    return list(dict.fromkeys(folder.absolute() for folder in folders))


def log_shortage(used_bytes: int, limit_bytes: int) -> str:
    """Why the log has too little room; empty if it has enough."""
    if used_bytes < SOFT_LIMIT * limit_bytes:
        return ""
    return (
        f"the log holds {used_bytes / MIB:.1f} of {limit_bytes / MIB:.1f} MiB (log.max_bytes); from {SOFT_LIMIT:.0%} on "
        "nothing new is begun. Give it more: hindcast log resize"
    )


def disk_shortage(folders: Iterable[Path], min_free_mib: int, *, halted: bool) -> str:
    """Which disk has too little room; empty if all have enough."""
    needed_mib = min_free_mib * (RELIEF if halted else 1.0)
    for folder in filter(Path.exists, folders):
        free_mib = shutil.disk_usage(folder).free / MIB
        if free_mib < needed_mib:
            return (
                f"the disk of {folder} has {free_mib:.0f} MiB free, less than {needed_mib:.0f} (storage.min_free_mib). "
                "Make room there"
            )
    return ""
