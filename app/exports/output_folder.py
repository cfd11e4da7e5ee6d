"""The folder that an export is written into: there as a whole, or not at all."""

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
"""Names that are files of the folder they are meant for: a log may come from anybody."""


class ExportRefused(HindcastError):
    """An export cannot be written where it was asked for, or not of what was asked for."""

    exit_code = 2


class ExportFailed(HindcastError):
    """The disk does not take an export."""


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A new folder beside it to write into, which takes the name, durably, when the block has ended well; else nothing stays.

    What a killed export has left there is dropped, and written anew: a log is read from its start in one go, and a
    parquet file is none before its end, so there is nothing to go on with.

    Raises:
        ExportRefused: something stands there already, or another export is writing it.
        ExportFailed: the disk has no room, or lets nobody write there.

    """
    folder = folder.absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ExportRefused(
            f"{folder} is there already and not empty: an export is never mixed with what was there. Name another folder "
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
        raise ExportFailed(f"the export into {folder} broke off, and nothing of it stays: {error}") from error


def _claim(unfinished: Path) -> int:
    """Make it ours, and empty, until the descriptor that this returns is closed or this process is gone."""
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    unfinished.mkdir(exist_ok=True)
    held = os.open(unfinished, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(held), unfinished.stat()):
            raise FileNotFoundError  # whoever held it has just finished
        for entry in unfinished.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    except (BlockingIOError, FileNotFoundError) as error:
        os.close(held)
        raise ExportRefused(
            f"another export into the same folder is at work in {unfinished}: wait for it, or name another folder with --to"
        ) from error
    return held


def file_name(episode: str, suffix: str) -> str:
    """The file of an episode. Raises ExportRefused when its id would lead elsewhere."""
    if PLAIN.fullmatch(episode) is None:
        raise ExportRefused(
            f"episode {episode!r} has an id that no file can be named after: letters, digits, `_`, `.` and `-` only. Leave it "
            "out with --family, --task, --outcome or --policy"
        )
    return f"{episode}.{suffix}"
