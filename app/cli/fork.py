"""`hindcast fork`: creates a run that continues another run's log."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from hindcast.app.cli.bars import progress_bar, watched
from hindcast.app.cli.output import Fields, Report, say
from hindcast.app.runs.sources import open_source
from hindcast.core.fast_import import loading
from hindcast.core.text.counts import count_of
from hindcast.events.log.places import OpenBatch, find_open_batch, parse_place, position_of

if TYPE_CHECKING:
    from hindcast.app.runs.fork import ForkResult

app = typer.Typer()


@app.command("fork")
def fork(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN", help="The parent, or its archive's folder; by default the run started last."
        ),
    ] = None,
    at: Annotated[
        str,
        typer.Option("--at", metavar="PLACE", help="Where to fork: a position, update=N, policy=N, …"),
    ] = "end",
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the new run; default: the next free run-N.")
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            "--recipe", metavar="NAME", help="Continue under another recipe, from the parent's weights."
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of the new run; repeatable."),
    ] = None,
    exact: Annotated[
        bool,
        typer.Option(
            "--exact",
            help="Fork exactly at the place, even inside a batch, which then ends under the parent's settings.",
        ),
    ] = False,
) -> Report:
    """Fork a run: create a new run whose log begins with the parent's and continues under its own settings.

    No event is copied: up to the fork position, the fork reads the parent's log. Start it with: hindcast start NAME

    Inside a batch the fork begins before the batch, so that its settings hold for all of the batch's updates.

    Example: hindcast fork run-1 --at update=40 --name colder --set learner.options.kl_coefficient=0.1
    """
    parent, place = open_source(run), parse_place(at)
    with loading():
        from hindcast.app.runs.fork import fork_run  # loads torch, so only now

    async def work() -> "ForkResult":
        async with parent.connect_log() as log:
            position = await position_of(log, place)
            batch = await find_open_batch(log, position=position)
        if batch is not None:
            say(_explain(batch, position, exact=exact))
            position = position if exact else batch.planned_at - 1
        with progress_bar() as bar:
            return await fork_run(
                parent,
                at=position,
                name=name,
                recipe=recipe,
                overrides=overrides or [],
                said=say,
                watching=lambda log: watched(log, bar, "folding the parent"),
            )

    forked = asyncio.run(work())
    changed = [(key, f"{then!r} -> {now!r}") for key, (then, now) in forked.changed.items()]
    return Report(
        forked,
        [
            Fields(
                [
                    ("run", forked.run),
                    ("fork of", f"{forked.parent}, up to position {forked.at} (update {forked.update})"),
                    ("policy version", forked.version),
                    (
                        "under way there",
                        f"{count_of(forked.abandoned, 'episode')} abandoned, {forked.judged} judged",
                    ),
                    *(changed or [("settings", "the parent's")]),
                ]
            ),
            f"Start it with: hindcast start {forked.run}",
        ],
    )


def _explain(batch: OpenBatch, position: int, *, exact: bool) -> str:
    """Explain which settings apply to the batch that the fork position divides."""
    inside = (
        f"position {position} lies inside batch {batch.batch}, with {batch.done} of its {batch.updates} updates of "
        f"{batch.model} done"
    )
    if exact:
        return (
            f"{inside}: the parent's settings hold for the other {batch.updates - batch.done}, the fork's from the next batch "
            "on. Without --exact the fork begins before the batch."
        )
    return (
        f"{inside}: the fork begins before the batch, at position {batch.planned_at - 1}, so that its settings hold for "
        "all of it. To fork inside the batch: --exact"
    )
