"""Views of what holds now: `NAME_current` for every versioned table, its open rows without `valid_to`.

They are created and dropped together with the tables, also by a rebuild. The canonical dump omits them, since they hold
nothing of their own. Hindcast never reads them; they are for SQL that people write.
"""

from collections.abc import Iterator

from sqlalchemy import Connection

from hindcast.storage.readmodel.tables import OPEN, TABLES

SUFFIX = "_current"

VIEWS: dict[str, str] = {f"{name}{SUFFIX}": name for name, table in TABLES.items() if table.info["versioned"]}
"""Name of each view -> the table whose open rows it shows."""


def columns_of(view: str) -> dict[str, str]:
    """The columns of a view with their descriptions."""
    return {
        column.name: column.comment or "" for column in TABLES[VIEWS[view]].c if column.name != "valid_to"
    }


def comment_of(view: str) -> str:
    """A sentence that describes a view."""
    return f"Rows of {VIEWS[view]} that hold now, at the position that the read model has reached."


def create_views(connection: Connection, *, schema: str | None) -> None:
    """Create every view; the tables must exist."""
    for view in VIEWS:
        for statement in _definition(connection, view, schema):
            connection.exec_driver_sql(statement)


def drop_views(connection: Connection, *, schema: str | None) -> None:
    """Drop all views: PostgreSQL keeps a table that a view uses."""
    for view in VIEWS:
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {_place(connection, view, schema)}")


def _definition(connection: Connection, view: str, schema: str | None) -> Iterator[str]:
    quote = connection.dialect.identifier_preparer.quote
    place = _place(connection, view, schema)
    shown = columns_of(view)
    yield (
        f"CREATE VIEW {place} AS SELECT {', '.join(map(quote, shown))} "
        f"FROM {_place(connection, VIEWS[view], schema)} WHERE valid_to = {OPEN}"
    )
    if connection.dialect.supports_comments:
        yield f"COMMENT ON VIEW {place} IS {_literal(comment_of(view))}"
        for name, text in shown.items():
            yield f"COMMENT ON COLUMN {place}.{quote(name)} IS {_literal(text)}"


def _place(connection: Connection, name: str, schema: str | None) -> str:
    quote = connection.dialect.identifier_preparer.quote
    return f"{quote(schema)}.{quote(name)}" if schema else quote(name)


def _literal(text: str) -> str:
    """The text as an SQL constant."""
    return "'" + text.replace("'", "''") + "'"
