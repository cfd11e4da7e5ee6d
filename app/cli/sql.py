"""`hindcast sql`: a query of the read model."""

from typing import Annotated

import typer

from hindcast.app.cli.options import SourceName
from hindcast.app.cli.output import Report, Table
from hindcast.app.cli.read_model import connect_read_model
from hindcast.storage.readmodel.sql import ask_sql

app = typer.Typer()


@app.command("sql")
def sql(
    query: Annotated[
        str, typer.Argument(metavar="SQL", help="One query; docs/read-model.md has the tables.")
    ],
    run: SourceName = None,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Rows at most.")] = 100,
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, help="Time limit.")] = 60.0,
) -> Report:
    """Ask a run in SQL. The query cannot change anything.

    Example: hindcast sql "SELECT state, count(*) FROM episodes_current GROUP BY state"
    """
    with connect_read_model(run) as connection:
        found = ask_sql(connection, query, limit=rows, seconds=seconds)
    more = [f"more: --rows {10 * rows}"] if found.is_cut else []
    return Report(found, [Table(found.columns, found.rows, empty="no row"), *more])
