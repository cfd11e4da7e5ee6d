"""`hindcast task list` and `hindcast task solve`."""

import asyncio
import sys
from typing import Annotated

import msgspec
import typer
from rich.progress import Progress

from app.cli.options import AsOf, Environment, Family, Json, Limit, SourceOption
from app.cli.output import print_json, print_table, print_text, rate, shorten
from app.cli.reading import asking, position_at
from app.configuration import resolve
from storage.readmodel.queries import list_tasks

app = typer.Typer(name="task", help="Tasks: what episodes attempt.", no_args_is_help=True)

INSTRUCTION_WIDTH = 60


@app.command("list")
def list_all(
    run: SourceOption = None,
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
            connection,
            as_of=position_at(connection, as_of),
            environment=environment,
            family=family,
            state=state,
            limit=limit,
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


@app.command("solve")
def solve_all(
    environment: Annotated[str, typer.Option(help="Which site: store, miniwob.")] = "miniwob",
    family: Annotated[list[str] | None, typer.Option(help="Only these families; repeatable.")] = None,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes of each family.")] = 20,
    as_json: Json = False,
) -> None:
    """Play the scripted demonstrators in a real browser and count what they win, by family.

    Example: hindcast task solve --environment miniwob --episodes 20
    """
    from app.solving import Solved, solvable, solve

    settings = resolve().settings
    families = solvable(environment, family or [], settings)

    async def play() -> list[Solved]:
        found: list[Solved] = []
        with Progress(disable=as_json or not sys.stderr.isatty()) as bar:
            task = bar.add_task(environment, total=len(families))
            async for one in solve(environment, families, episodes=episodes, settings=settings):
                found.append(one)
                bar.update(task, advance=1)
        return found

    found = asyncio.run(play())
    if as_json:
        print_json({"families": msgspec.to_builtins(found)})
        return
    print_table(
        ("family", "won", "n", "steps"),
        [(one.family, one.won, one.episodes, one.mean_steps) for one in found],
        empty="No family.",
    )
    print_text(
        f"{sum(one.won for one in found)} of {sum(one.episodes for one in found)} episodes won in {len(found)} families"
    )
