"""Whether there is room left to begin anything: in the log, and on the disks of log, blobs and read model.

Soft limits, well before the hard ones: what was begun can be ended, and the event that says so fits. Behind them stand the
hard ones: a full log makes publishers wait (`events.log.publisher`), a full disk whoever writes to it.
"""

import shutil
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from hindcast.app.runs.runs import RunHandle
from hindcast.events.log.joined_log import RunLog
from hindcast.storage.blobs.bucket import is_bucket

SOFT_LIMIT = 0.9
"""Share of `log.max_bytes` at which nothing new is begun."""
RELIEF = 1.25
"""After a halt so many times `storage.min_free_mib` must be free: otherwise every small file would halt it again."""
MIB = 1024 * 1024


def room_check(handle: RunHandle, log: RunLog) -> Callable[[bool], Awaitable[str]]:
    """A check for the curriculum (`actors.curriculum.role.RoomCheck`)."""
    folders = disks_of(handle)

    async def check(halted: bool) -> str:
        fill = await log.fill()
        full = log_shortage(fill.used_bytes, fill.limit_bytes)
        return full or disk_shortage(folders, handle.settings.storage.min_free_mib, halted=halted)

    return check


def disks_of(handle: RunHandle) -> list[Path]:
    """Folders that the run writes to on this machine."""
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
    """Why the log has too little room, or nothing."""
    if used_bytes < SOFT_LIMIT * limit_bytes:
        return ""
    return (
        f"the log holds {used_bytes / MIB:.1f} of {limit_bytes / MIB:.1f} MiB (log.max_bytes); from {SOFT_LIMIT:.0%} on "
        "nothing new is begun. Give it more: hindcast log resize"
    )


def disk_shortage(folders: Iterable[Path], min_free_mib: int, *, halted: bool) -> str:
    """Which disk has too little room, or nothing."""
    needed_mib = min_free_mib * (RELIEF if halted else 1.0)
    for folder in filter(Path.exists, folders):
        free_mib = shutil.disk_usage(folder).free / MIB
        if free_mib < needed_mib:
            return (
                f"the disk of {folder} has {free_mib:.0f} MiB free, less than {needed_mib:.0f} (storage.min_free_mib). "
                "Make room there"
            )
    return ""
