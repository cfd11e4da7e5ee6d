"""`hindcast without`: derives a run whose updates leave out data of another."""

import asyncio
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from hindcast.app.cli.bars import progress_bar
from hindcast.app.cli.options import RunName
from hindcast.app.cli.output import Fields, Report, say
from hindcast.app.cli.read_model import connect_read_model
from hindcast.app.runs.runs import RunHandle, open_run
from hindcast.core.errors import SettingsError
from hindcast.core.fast_import import loading

if TYPE_CHECKING:
    from hindcast.app.runs.without import Choice, Derived

app = typer.Typer()

CAVEAT = "Later episodes stay what they were: policies that were trained on what is left out played them."


@app.command("without")
def without(
    run: RunName = None,
    episode: Annotated[
        list[str] | None, typer.Option("--episode", help="Leave out this episode; repeatable.")
    ] = None,
    family: Annotated[
        list[str] | None,
        typer.Option("--family", help="Leave out this family, as buy or store/buy; repeatable."),
    ] = None,
    task: Annotated[list[str] | None, typer.Option("--task", help="Leave out this task; repeatable.")] = None,
    policy: Annotated[
        list[int] | None,
        typer.Option("--policy", help="Leave out episodes that this version acted in; repeatable."),
    ] = None,
    query: Annotated[
        str | None,
        typer.Option(
            "--query", metavar="SQL", help="Leave out episodes that a query of the read model returns."
        ),
    ] = None,
    verdicts: Annotated[
        str | None,
        typer.Option("--verdicts", metavar="JUDGE", help="Train on this judge's verdicts instead."),
    ] = None,
    plans: Annotated[
        Literal["again", "keep"],
        typer.Option("--plan", help="Plan by the rules from what remains, or keep the batches less it."),
    ] = "again",
    check: Annotated[
        bool,
        typer.Option("--check", help="Leave out nothing and compute everything: the weights must be equal."),
    ] = False,
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the new run; default: the next free run-N.")
    ] = None,
) -> Report:
    """Compute a run's updates again as if some of its data had never been trained on; makes a new run of the result.

    Up to the first batch that held any of it, the new run is the old one. Later episodes stay what they were.

    Example: hindcast without run-1 --family store/buy --name no-buy
    """
    parent = open_run(run)
    with loading():
        from hindcast.app.runs.without import Choice  # loads torch, so only now
    choice = Choice(
        episodes=(*(episode or ()), *(_asked(parent.name, query) if query else ())),
        families=tuple(family or ()),
        tasks=tuple(task or ()),
        versions=tuple(policy or ()),
        query=query or "",
    )
    chosen = choice != Choice() or verdicts is not None
    if chosen == check:
        raise SettingsError(
            "--check leaves out nothing: omit the other choices"
            if check
            else "nothing is left out. Name it with --episode, --family, --task, --policy, --query or --verdicts; --check computes "
            "everything again as it was"
        )
    if verdicts is not None and plans == "keep":
        raise SettingsError(
            "--verdicts plans again, since other verdicts make other batches: omit --plan keep"
        )
    derived = asyncio.run(_derive(parent, choice, plans=plans, judge=verdicts or "", name=name))
    return Report(derived, [Fields(_fields(derived)), CAVEAT, _next(derived)])


def _asked(run: str, query: str) -> list[str]:
    """Episodes in the first column of a query's answer."""
    with connect_read_model(run) as connection:
        try:
            found = [row[0] for row in connection.execute(text(query))]
        except SQLAlchemyError as error:
            reason = str(getattr(error, "orig", error))
            raise SettingsError(
                f"--query: {reason}. The tables are in docs/read-model.md; the first column names episodes"
            ) from error
    if not found:
        raise SettingsError(f"--query returns no episode: {query}")
    return [str(one) for one in found]


async def _derive(
    parent: RunHandle, choice: "Choice", *, plans: Literal["again", "keep"], judge: str, name: str | None
) -> "Derived":
    from hindcast.app.runs.without import cost, derive, survey

    async with parent.connect_log() as log:
        found = await survey(log, choice, judge=judge)
    at, updates, cpu_s = cost(found)
    if at >= 0:
        say(
            f"computing {updates} updates after position {at}, which took {cpu_s:.0f} s of CPU time when they were recorded, and "
            "those since the checkpoint before it"
        )
    with progress_bar() as bar:
        shown = bar.add_task("events", total=found.last - max(at, 0))
        return await derive(
            parent,
            found,
            choice,
            plans=plans,
            judge=judge,
            name=name,
            said=say,
            progress=lambda position: bar.update(shown, completed=position - at),
        )


def _fields(derived: "Derived") -> list[tuple[str, object]]:
    left_out = f"{derived.left_out} episodes: {derived.choice}"
    if derived.rejudged:
        left_out += f"; {derived.rejudged} judged otherwise"
    return [
        ("run", derived.run),
        ("without", left_out),
        ("as", f"{derived.parent} up to position {derived.at}"),
        (
            "batches",
            f"{derived.batches} planned, {derived.batches_then} by {derived.parent} ({derived.plans})",
        ),
        ("updates", f"{derived.updates} computed, {derived.skipped} mini-batches skipped"),
        ("policy version", f"{derived.version}, {derived.parent_version} of {derived.parent}"),
        ("same weights", f"{derived.same_weights} of {derived.compared_weights} versions, bit for bit"),
    ]


def _next(derived: "Derived") -> str:
    return f"Next: hindcast verify {derived.run} · hindcast eval --policy latest {derived.run} · hindcast fork {derived.run}"
