"""Creates the output folder of an export, either complete or not at all."""

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hindcast.core.errors import HindcastError
from hindcast.events.disk import Disk

PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,120}")
"""Episode ids that are safe as file names; a log may come from an untrusted source."""


class ExportRefused(HindcastError):
    """An export cannot be written there, or an episode cannot be exported."""

    exit_code = 2


class ExportFailed(HindcastError):
    """Writing the export failed."""


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Yield a new folder next to the target. It is durably renamed to the target if the block succeeds, else deleted.

    Files that a killed export left are deleted. An export cannot be resumed: it reads the log from its start in one pass, and
    an unfinished parquet file is unreadable.

    Raises:
        ExportRefused: the target exists and is not empty, or another export writes it.
        ExportFailed: the disk is full or not writable.

    """
    folder = folder.absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ExportRefused(
            f"{folder} exists and is not empty: an export never mixes with other files. Name another folder "
            "with --to, or delete it"
        )
    unfinished, disk = folder.with_name(f".{folder.name}.unfinished"), Disk()
    try:
        held = _claim(unfinished)
        try:
            yield unfinished
            disk.sync_tree(unfinished)
            unfinished.rename(folder)
            disk.sync_folder(folder.parent)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        finally:
            os.close(held)
    except OSError as error:
        raise ExportFailed(f"the export into {folder} failed and was deleted: {error}") from error


def _claim(unfinished: Path) -> int:
    """Create the folder empty and lock it until the returned descriptor is closed or this process ends."""
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    unfinished.mkdir(exist_ok=True)
    held = os.open(unfinished, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(held), unfinished.stat()):
            raise FileNotFoundError  # the other export has just finished
        for entry in unfinished.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    except (BlockingIOError, FileNotFoundError) as error:
        os.close(held)
        raise ExportRefused(
            f"another export into the same folder is writing {unfinished}: wait for it, or name another folder with --to"
        ) from error
    return held


def file_name(episode: str, suffix: str) -> str:
    """File name of an episode. Raises ExportRefused if its id would lead outside the folder."""
    if PLAIN.fullmatch(episode) is None:
        raise ExportRefused(
            f"episode {episode!r} has an id that cannot be a file name: letters, digits, `_`, `.` and `-` only. Leave it "
            "out with --family, --task, --outcome or --policy"
        )
    return f"{episode}.{suffix}"
