"""A read model of a log that nobody projects, such as an archive's: folded when it is asked for, and kept for next time.

It stands in the home, `folded/<run>-<digest of where the log lies>.sqlite`, never beside the log, which may be evidence
or lie where nothing can be written. What is kept is a fold like any other: it knows which log it was made from and how
far, takes in what was added since, and is made anew when the log is another one or a later Hindcast has other tables.
"""

import asyncio
import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from app.sources import Source
from app.supervisor import home_folder
from core.errors import ForeignLog
from events.log import EventLog
from storage.readmodel.database import ReadModel
from storage.readmodel.filling import fill
from storage.sqlite_address import sqlite_address

FOLDER = "folded"

Watching = Callable[[EventLog], EventLog]


def folded(source: Source, *, watching: Watching = lambda log: log) -> ReadModel:
    """The read model of a source, as far as its log goes now; to be closed by the caller. `watching`: see it being read.

    Raises:
        CorruptEvent, ForeignLog: the log cannot be folded; the message names the position.

    """
    file = _place(source)
    file.parent.mkdir(parents=True, exist_ok=True)
    model = ReadModel(sqlite_address(file), run=source.name)
    try:
        with _alone(file):
            model.prepare()
            try:
                asyncio.run(_fill(source, model, watching))
            except ForeignLog:  # another log lies there now, or less of it than before
                model.reset()
                asyncio.run(_fill(source, model, watching))
    except BaseException:
        model.close()
        raise
    return model


def _place(source: Source) -> Path:
    lies = sha256(str(source.folder.resolve()).encode()).hexdigest()[:12]
    return home_folder().absolute() / FOLDER / f"{source.name}-{lies}.sqlite"


async def _fill(source: Source, model: ReadModel, watching: Watching) -> None:
    async with source.connect_log() as log:
        await fill(watching(log), model, strict=False)


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    """One process at a time folds into a file; another one waits, and finds it done."""
    with open(f"{file}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
