"""What analysts meet: views of what holds now, and a description of every table and column in the schema itself."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, inspect, select, text, update

from hindcast.storage.readmodel.database import VIEWS, ReadModel, columns_of
from hindcast.storage.readmodel.descriptions import OWN, SHARED
from hindcast.storage.readmodel.fold import apply
from hindcast.storage.readmodel.rebuild import dump
from hindcast.storage.readmodel.tables import OPEN, TABLES, cursor, metadata
from stories.synthetic_run import recorded_run

GUIDE = Path(__file__).parents[2] / "docs" / "read-model.md"
BLOCK = re.compile(r"^```sql\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.fixture
def model(url: str) -> Iterator[ReadModel]:
    made = ReadModel(url, run="tale")
    made.prepare()
    yield made
    made.close()


def rows_of(connection: Connection, view: str, schema: str | None) -> list[tuple[object, ...]]:
    place = f'"{schema}"."{view}"' if schema else view
    return sorted((tuple(row) for row in connection.execute(text(f"SELECT * FROM {place}"))), key=repr)


def views_in(model: ReadModel) -> set[str]:
    with model.reading() as connection:
        return set(inspect(connection).get_view_names(schema=model.schema))


async def test_every_changing_table_has_a_view_of_the_rows_that_hold_now(model: ReadModel) -> None:
    _, recordeds = await recorded_run(1)
    with model.writing() as connection:
        apply(connection, recordeds)
    assert {*VIEWS.values()} == {name for name, table in TABLES.items() if table.info["versioned"]}
    with model.reading() as connection:
        for view, name in VIEWS.items():
            table = TABLES[name]
            shown = [table.c[column] for column in columns_of(view)]
            open_rows = connection.execute(select(*shown).where(table.c.valid_to == OPEN)).all()
            assert rows_of(connection, view, model.schema) == sorted(map(tuple, open_rows), key=repr)
            assert "valid_to" not in columns_of(view)
        assert len(rows_of(connection, "episodes_current", model.schema)) > 10
        assert not any(view.encode() in line for line in dump(connection) for view in VIEWS)


def test_views_are_made_again_with_the_tables(model: ReadModel) -> None:
    assert views_in(model) == {*VIEWS}
    model.reset()
    assert views_in(model) == {*VIEWS}
    with model.writing() as connection:
        connection.execute(update(cursor).values(schema_version=0))
    assert model.prepare() is not None
    assert views_in(model) == {*VIEWS}


def test_a_read_model_from_before_the_views_is_dropped_and_gets_them(url: str) -> None:
    old = ReadModel(url, run="tale")
    old.prepare()
    with old.writing() as connection:
        for view in VIEWS:
            connection.execute(
                text(f'DROP VIEW "{old.schema}"."{view}"' if old.schema else f"DROP VIEW {view}")
            )
        connection.execute(update(cursor).values(schema_version=16))
    assert old.prepare() is not None
    assert views_in(old) == {*VIEWS}
    old.close()


def test_every_table_and_column_is_described_and_no_description_is_of_nothing() -> None:
    columns = {(table.name, column.name) for table in metadata.sorted_tables for column in table.c}
    for table in metadata.sorted_tables:
        for sentence in (table.comment, *(column.comment for column in table.c)):
            assert sentence, f"{table.name} has no description"
            assert sentence.endswith("."), f"{table.name}: {sentence}"
    own = {(table, column) for table, described in OWN.items() for column in described}
    assert own <= columns
    assert {*SHARED} <= {column for table, column in columns - own}


def test_descriptions_are_comments_of_the_schema_where_the_database_knows_comments(model: ReadModel) -> None:
    with model.reading() as connection:
        asked = inspect(connection)
        if not connection.dialect.supports_comments:
            assert asked.get_columns("episodes", schema=model.schema)
            return
        for table in metadata.sorted_tables:
            assert asked.get_table_comment(table.name, schema=model.schema)["text"] == table.comment
            found = {
                one["name"]: one["comment"] for one in asked.get_columns(table.name, schema=model.schema)
            }
            assert found == {column.name: column.comment for column in table.c}
        for view in VIEWS:
            found = {one["name"]: one["comment"] for one in asked.get_columns(view, schema=model.schema)}
            assert found == columns_of(view)


async def test_the_guides_queries_run_in_every_database(model: ReadModel) -> None:
    _, recordeds = await recorded_run(1)
    with model.writing() as connection:
        apply(connection, recordeds)
    blocks = BLOCK.findall(GUIDE.read_text().partition("## Files instead")[0])
    statements = [one for block in blocks for one in block.split(";") if one.strip()]
    assert len(statements) > 5
    with model.reading() as connection:
        if model.schema:
            connection.execute(text(f'SET LOCAL search_path = "{model.schema}"'))
        found = [connection.execute(text(statement)).all() for statement in statements]
    assert all(rows for rows, statement in zip(found, statements, strict=True) if "failed" not in statement)
