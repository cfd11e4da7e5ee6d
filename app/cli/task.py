"""`hindcast task list`."""

from typing import Annotated

import typer

from app.cli.options import AsOf, Environment, Family, Json, Limit, RunOption
from app.cli.output import print_json, print_table, rate, shorten
from app.cli.reading import asking
from storage.readmodel.queries import list_tasks

app = typer.Typer(name="task", help="Tasks: what episodes attempt.", no_args_is_help=True)

INSTRUCTION_WIDTH = 60


@app.command("list")
def list_all(
    run: RunOption = None,
    environment: Environment = None,
    family: Family = None,
    state: Annotated[str | None, typer.Option(help="proposed, admitted, rejected or unlisted.")] = None,
    limit: Limit = 50,
    as_of: AsOf = None,
    as_json: Json = False,
) -> None:
    """List tasks with their success, the most attempted first.

    Example: hindcast task list --environment store
    """
    with asking(run) as connection:
        found = list_tasks(
            connection, as_of=as_of, environment=environment, family=family, state=state, limit=limit
        )
    if as_json:
        print_json({"tasks": found})
        return
    print_table(
        ("task", "family", "seed", "state", "phase", "episodes", "success", "instruction"),
        [
            (
                t.task,
                f"{t.environment}/{t.family}",
                t.seed,
                t.state,
                t.phase,
                t.episodes,
                rate(t.success),
                shorten(t.instruction, INSTRUCTION_WIDTH),
            )
            for t in found
        ],
        empty="No such task.",
    )
