"""Queries of the user's own: they read the run's tables, change nothing, and end in time."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, func, select

from hindcast.storage.readmodel.database import ReadModel
from hindcast.storage.readmodel.fold import apply
from hindcast.storage.readmodel.sql import SAVED, QueryRefused, ask_sql
from hindcast.storage.readmodel.tables import episodes
from servers.postgres_server import LivePostgres
from stories.synthetic_run import recorded_run

FOREVER = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReadModel]:
    server: LivePostgres | None = None
    if request.param == "sqlite":
        address = f"sqlite:///{tmp_path_factory.mktemp('sql')}/model.sqlite"
    else:
        server = request.getfixturevalue("postgres")
        database = server.take_database()
        address = server.address(database)
    found = ReadModel(address, run="tale")
    found.prepare()
    with found.writing() as connection:
        apply(connection, asyncio.run(recorded_run(1, groups=3, group_size=4))[1])
    yield found
    found.close()
    if server is not None:
        server.give_back(database)


def ask(connection: Connection, query: str, **limits: Any) -> Any:
    return ask_sql(connection, query, **{"limit": 100, "seconds": 30.0} | limits)


def test_a_query_is_answered_with_its_columns(model: ReadModel) -> None:
    with model.reading() as connection:
        found = ask(connection, "SELECT state, count(*) AS n FROM episodes_current GROUP BY state;")
        assert found.columns == ("state", "n")
        assert sum(n for _, n in found.rows) == 12
        assert not found.is_cut
        assert ask(connection, "SELECT episode FROM episodes_current", limit=5).is_cut
        none = ask(connection, "SELECT episode FROM episodes_current WHERE state = 'nothing'")
        assert none.rows == ()
        assert not none.is_cut


def test_a_long_answer_is_not_read_beyond_the_limit(model: ReadModel) -> None:
    with model.reading() as connection:
        found = ask(connection, f"{FOREVER.rpartition('SELECT')[0]} SELECT i FROM n", limit=3, seconds=5.0)
        assert found.rows == ((1,), (2,), (3,))
        assert found.is_cut


@pytest.mark.parametrize("query", SAVED, ids=[one.title for one in SAVED])
def test_saved_queries_are_answered(model: ReadModel, query: Any) -> None:
    with model.reading() as connection:
        assert ask(connection, query.sql).columns


@pytest.mark.parametrize(
    "query",
    [
        "",
        "DELETE FROM episodes",
        "WITH gone AS (SELECT 1) DELETE FROM episodes",
        "SELECT 1; DELETE FROM episodes",
        "SELECT 1; COMMIT; DELETE FROM episodes",
        "PRAGMA query_only = OFF",
        "ATTACH '/etc/passwd' AS other",
        "COMMIT",
        "SELECT nothing FROM nowhere",
    ],
)
def test_what_is_no_query_is_refused_and_changes_nothing(model: ReadModel, query: str) -> None:
    with model.reading() as connection, pytest.raises(QueryRefused, match=r"docs/read-model\.md"):
        ask(connection, query)
    with model.reading() as connection:
        assert connection.scalar(select(func.count()).select_from(episodes)) > 12


def test_a_query_without_end_is_stopped(model: ReadModel) -> None:
    with model.reading() as connection, pytest.raises(QueryRefused, match=r"longer than 0\.3 s"):
        ask(connection, FOREVER, seconds=0.3)
    with model.reading() as connection:
        assert ask(connection, "SELECT 1 AS one").rows == ((1,),)


def test_another_database_is_not_read(tmp_path: Path) -> None:
    model = ReadModel(f"sqlite:///{tmp_path}/model.sqlite", run="tale")
    model.prepare()
    with model.reading() as connection, pytest.raises(QueryRefused, match="not authorized"):
        ask(connection, "SELECT * FROM pragma_database_list")
    model.close()
