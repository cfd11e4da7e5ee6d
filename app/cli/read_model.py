"""Queries a run's read model from a command, after folding missing events."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sqlalchemy import Connection

from hindcast.app.cli.bars import progress_bar, watched
from hindcast.app.cli.output import say
from hindcast.app.runs.folded_read_model import bring_up, folded
from hindcast.app.runs.runs import RunHandle
from hindcast.app.runs.sources import open_source
from hindcast.core.errors import HindcastError
from hindcast.events.log.places import parse_place
from hindcast.storage.readmodel.database import ReadModelUnavailable
from hindcast.storage.readmodel.query_parts import position_of, position_of_place


@contextmanager
def asking(run: str | None) -> Iterator[Connection]:
    """One consistent view of the read model of a run or an archive; `run` None: the run started last.

    It folds missing events first, unless a projector is running. If that fails, it prints the reason and answers from the
    existing read model.
    """
    source = open_source(run)
    if isinstance(source, RunHandle):
        failed = brought_up([source])
        with reading(source, failed.get(source.name)) as connection:
            yield connection
        return
    with progress_bar() as bar:
        model = folded(source, watching=lambda log: watched(log, bar, "folding"))
    try:
        with model.reading() as connection:
            yield connection
    finally:
        model.close()


def brought_up(runs: Sequence[RunHandle]) -> dict[str, HindcastError | OSError]:
    """Bring runs' read models up to date, with a progress bar; returns the error of each run that failed."""
    with progress_bar() as bar:
        return bring_up(runs, watching=lambda log: watched(log, bar, "folding"))


@contextmanager
def reading(run: RunHandle, failure: HindcastError | OSError | None) -> Iterator[Connection]:
    """One consistent view of a run's read model as it is. `failure`: why it may lack events.

    Raises:
        HindcastError, OSError: the failure, if there is no read model to answer from.

    """
    model = run.read_model()
    try:
        with model.reading() as connection:
            if failure is not None:
                reached = position_of(connection, None)
                say(f"answered as of position {reached}, later events could not be read: {failure}")
            yield connection
    except ReadModelUnavailable as error:
        if failure is None:
            raise
        raise failure from error
    finally:
        model.close()


def position_at(connection: Connection, as_of: str | None) -> int | None:
    """The position that `--as-of` means; None without the option.

    Raises:
        NoSuchPlace, NotInReadModel: the place does not exist, or not yet.

    """
    return None if as_of is None else position_of_place(connection, parse_place(as_of))
