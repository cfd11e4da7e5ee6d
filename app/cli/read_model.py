"""Opens a run's read model for a command, after folding missing events."""

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
def connect_read_model(run: str | None) -> Iterator[Connection]:
    """Open one consistent view of the read model of a run or an archive; `run` None: the run started last.

    It folds missing events first, unless a projector is running. If that fails, it prints the reason and answers from the
    existing read model.
    """
    source = open_source(run)
    if isinstance(source, RunHandle):
        failed = update_read_models([source])
        with connect_as_is(source, failed.get(source.name)) as connection:
            yield connection
        return
    with progress_bar() as bar:
        model = folded(source, watching=lambda log: watched(log, bar, "folding"))
    try:
        with model.reading() as connection:
            yield connection
    finally:
        model.close()


def update_read_models(runs: Sequence[RunHandle]) -> dict[str, HindcastError | OSError]:
    """Bring runs' read models up to date, with a progress bar; returns the error of each run that failed."""
    with progress_bar() as bar:
        return bring_up(runs, watching=lambda log: watched(log, bar, "folding"))


@contextmanager
def connect_as_is(run: RunHandle, failure: HindcastError | OSError | None) -> Iterator[Connection]:
    """Open one consistent view of a run's existing read model. `failure`: why it may lack events.

    Raises:
        HindcastError, OSError: the failure, if no read model exists.

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
    """Return the position that `--as-of` names; None without the option.

    Raises:
        NoSuchPlace, NotInReadModel: the place does not exist, or is not in the read model yet.

    """
    return None if as_of is None else position_of_place(connection, parse_place(as_of))
