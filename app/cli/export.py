"""`hindcast export`: exports a run in a format of other tools."""

import asyncio
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from hindcast.app.cli.bars import progress_bar
from hindcast.app.cli.options import (
    AsOf,
    Environment,
    Family,
    OfOutcome,
    OfState,
    Origin,
    PluginOptions,
    SourceName,
    option_values,
    site_and_family,
)
from hindcast.app.cli.output import Report
from hindcast.app.cli.read_model import connect_read_model, position_at
from hindcast.app.exports import EXPORTERS
from hindcast.app.exports.export import export
from hindcast.app.runs.sources import open_source
from hindcast.app.system.home import home_folder, users_umask
from hindcast.core.plugins import plugin_names
from hindcast.core.text.nearest import advice
from hindcast.storage.readmodel.episode_queries import EpisodeFilter, matching_episodes
from hindcast.storage.readmodel.task_queries import refuse_unknown

BAR_EVENTS = 500
"""Events between two updates of the bar."""

app = typer.Typer()


def _known_format(name: str) -> str:
    names = plugin_names(EXPORTERS)
    if ":" not in name and name not in names:
        raise typer.BadParameter(f"{name!r} is not a format; {advice(name, names)}")
    return name


@app.command("export")
def export_run(
    to: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="New folder to write.")],
    run: SourceName = None,
    format_name: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            callback=_known_format,
            help=f"Format: {', '.join(plugin_names(EXPORTERS))}, or module:object.",
        ),
    ] = "parquet",
    options: PluginOptions = None,
    state: OfState = None,
    outcome: OfOutcome = None,
    environment: Environment = None,
    family: Family = None,
    origin: Origin = None,
    task: Annotated[str | None, typer.Option(help="Only attempts at this task.")] = None,
    policy: Annotated[int | None, typer.Option(help="Only episodes that this policy version began.")] = None,
    as_of: AsOf = None,
) -> Report:
    """Export a run or an archive in a format of other tools; docs/exports.md describes the formats.

    The folder is created completely or not at all. The options select episodes; records that belong to no episode are always exported.

    Example: hindcast export run-1 --to ./run-1-successes --format dataset --outcome success
    """
    environment, family = site_and_family(environment, family)
    wanted = EpisodeFilter(
        state=state,
        outcome=outcome,
        environment=environment,
        family=family,
        origin=origin,
        task=task,
        policy=policy,
    )
    with connect_read_model(run) as connection, progress_bar() as bar:
        position = position_at(connection, as_of)
        if next(matching_episodes(connection, wanted, as_of=position), None) is None:
            refuse_unknown(connection, wanted, as_of=position)
        writing = bar.add_task(f"writing {format_name}", total=None)

        def moved(position: int, last: int) -> None:
            if position % BAR_EVENTS == 0:
                bar.update(writing, completed=position, total=last)

        with users_umask(to, home_folder()):
            done = asyncio.run(
                export(
                    open_source(run),
                    connection,
                    to,
                    format_name=format_name,
                    wanted=wanted,
                    options=option_values(options),
                    as_of=position,
                    on_event=moved,
                )
            )
    counts = ", ".join(f"{number} {name}" for name, number in done.counts.items())
    return Report(
        msgspec.to_builtins(done) | {"folder": str(to)},
        [f"run {done.run} up to position {done.position} as {done.format} in {to}: {counts}"],
    )
