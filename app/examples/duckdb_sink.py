"""Verdicts and updates as tables of the DuckDB file DUCKDB_FILE, each event exactly once, also after a kill -9.

An event that is repeated after a crash is recognized by its id. Between events the file is free for queries of others.
"""

import os

from sqlalchemy import Connection

from hindcast.api import Recorded
from hindcast.core.errors import SettingsError
from hindcast.events.catalogue import EpisodeJudged, UpdateApplied

VERDICTS = "verdicts(id TEXT UNIQUE, position BIGINT, episode TEXT, judge TEXT, outcome TEXT, reward DOUBLE)"
UPDATES = "updates(id TEXT UNIQUE, position BIGINT, number BIGINT, model TEXT, loss DOUBLE, kl DOUBLE)"
INSERT = "INSERT INTO {} VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"


def prepare(_: Connection) -> None:
    """Make the tables."""
    run(f"CREATE TABLE IF NOT EXISTS {VERDICTS}; CREATE TABLE IF NOT EXISTS {UPDATES}")


def consumer(event: Recorded, _: Connection) -> None:
    """Insert a row for each verdict and each update."""
    match event.fact:
        case EpisodeJudged(episode=episode, judge=judge, judgment=said):
            run(INSERT.format("verdicts"), event, episode, judge.name, said.outcome, said.reward)
        case UpdateApplied(metrics=told) as fact:
            run(INSERT.format("updates"), event, fact.update, fact.model, told.get("loss"), told.get("kl"))


def run(statement: str, event: Recorded | None = None, *values: object) -> None:
    """Done and durable on return."""
    try:
        import duckdb
    except ImportError as error:
        raise SettingsError("DuckDB is not installed: pip install 'hindcast[duckdb]'") from error
    with duckdb.connect(os.environ.get("DUCKDB_FILE", "hindcast.duckdb")) as duck:
        duck.execute(statement, [event.envelope.id, event.position, *values] if event else [])
