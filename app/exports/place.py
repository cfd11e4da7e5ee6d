"""The folder that an export is written into: there as a whole, or not at all."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from core.errors import HindcastError

PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,120}")
"""Names that are files of the folder they are meant for: a log may come from anybody."""


class ExportRefused(HindcastError):
    """An export cannot be written where it was asked for, or not of what was asked for."""

    exit_code = 2


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A new folder beside it to write into, which takes the name when the block has ended well; else nothing stays.

    Raises:
        ExportRefused: something stands there already.

    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ExportRefused(
            f"{folder} is there already and not empty: an export is never mixed with what was there. Name another folder "
            "with --to, or delete it"
        )
    parent = folder.absolute().parent
    parent.mkdir(parents=True, exist_ok=True)
    unfinished = parent / f".{folder.name}.unfinished-{os.getpid()}"
    shutil.rmtree(unfinished, ignore_errors=True)  # of a killed process that had our number
    unfinished.mkdir()
    try:
        yield unfinished
        unfinished.rename(folder)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def file_name(episode: str, suffix: str) -> str:
    """The file of an episode. Raises ExportRefused when its id would lead elsewhere."""
    if PLAIN.fullmatch(episode) is None:
        raise ExportRefused(
            f"episode {episode!r} has an id that no file can be named after: letters, digits, `_`, `.` and `-` only. Leave it "
            "out with --family, --task, --outcome or --policy"
        )
    return f"{episode}.{suffix}"
