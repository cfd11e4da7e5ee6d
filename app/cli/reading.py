"""Asking a run's read model from a command."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection

from app.runs import open_run


@contextmanager
def asking(run: str | None) -> Iterator[Connection]:
    """One consistent view of a run's read model; `run` None: the one started last."""
    model = open_run(run).read_model()
    try:
        with model.reading() as connection:
            yield connection
    finally:
        model.close()
