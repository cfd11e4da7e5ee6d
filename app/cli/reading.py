"""Asking a run's read model from a command."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection

from app.cli.bars import progress_bar, watched
from app.folding import folded
from app.runs import RunHandle
from app.sources import open_source
from events.places import parse_place
from storage.readmodel.places import position_of_place


@contextmanager
def asking(run: str | None) -> Iterator[Connection]:
    """One consistent view of a run's read model; `run` None: the one started last.

    What is no run of this home has no read model that anybody keeps up, so its log is folded first.
    """
    source = open_source(run)
    if isinstance(source, RunHandle):
        model = source.read_model()
    else:
        with progress_bar() as bar:
            model = folded(source, watching=lambda log: watched(log, bar, "folding"))
    try:
        with model.reading() as connection:
            yield connection
    finally:
        model.close()


def position_at(connection: Connection, as_of: str | None) -> int | None:
    """The position that `--as-of` means; None where it was not given.

    Raises:
        NoSuchPlace, NotInReadModel: there is no such place, or not yet.

    """
    return None if as_of is None else position_of_place(connection, parse_place(as_of))
