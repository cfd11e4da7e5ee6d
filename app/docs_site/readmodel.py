"""The reference of the read model: its tables, views and columns, from the schema that creates them."""

from sqlalchemy import Column, Table

from hindcast.app.docs_site.references import code, table
from hindcast.storage.readmodel.database import VIEWS, columns_of, comment_of
from hindcast.storage.readmodel.tables import TABLES, cursor

_HEADS = ("column", "type", "key", "meaning")
_TYPES = {"BIGINT": "integer", "INTEGER": "integer", "TEXT": "text", "DOUBLE": "real", "BOOLEAN": "boolean"}


def readmodel_page() -> str:
    """Every table with its columns and its view, if it has one."""
    views = {name: view for view, name in VIEWS.items()}
    parts = [
        "# Read model\n\nTables and views of a run's SQL read model, as this Hindcast creates them. A versioned table has "
        "`valid_from` and `valid_to` and a view of what holds now; a recorded table has `position`. How to open and ask it: "
        "[Ask a run in SQL](../read-model.md). In PostgreSQL the descriptions are comments of the schema: `\\d+ episodes`.\n"
    ]
    for name, one in (*TABLES.items(), (cursor.name, cursor)):
        kind = _kind(one)
        parts.append(f"## {name}\n\n{kind} {one.comment}\n\n{table(_HEADS, map(_row, one.c))}")
        if name in views:
            columns = ", ".join(code(column) for column in columns_of(views[name]))
            parts.append(f"### {views[name]}\n\nView. {comment_of(views[name])} Columns: {columns}.\n")
    return "\n".join(parts)


def _kind(one: Table) -> str:
    if "versioned" not in one.info:
        return ""
    return "Versioned." if one.info["versioned"] else "Recorded."


def _row(column: Column[object]) -> tuple[str, str, str, str]:
    kind = _TYPES[str(column.type).partition(" ")[0]]
    return code(column.name), kind, "yes" if column.primary_key else "", column.comment or ""
