"""`hindcast without`: derives a run whose updates leave out data of another."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import msgspec
import typer

from hindcast.app.cli.bars import progress_bar
from hindcast.app.cli.options import RunName
from hindcast.app.cli.output import Block, Fields, Report, Table, say
from hindcast.app.cli.read_model import connect_read_model
from hindcast.app.runs.runs import RunHandle, open_run
from hindcast.core.errors import SettingsError
from hindcast.core.fast_import import loading
from hindcast.core.settings.schema import Settings
from hindcast.core.text.counts import count_of
from hindcast.storage.readmodel.sql import QueryRefused, ask_sql

if TYPE_CHECKING:
    from hindcast.app.evaluation.effect import Effect, FamilyEffect
    from hindcast.app.evaluation.evaluation import OutcomeTally
    from hindcast.app.runs.left_out import Choice, Survey
    from hindcast.app.runs.without import Derived
    from hindcast.events.catalogue import EpisodeRequested

app = typer.Typer()

MOST_EPISODES = 1_000_000
QUERY_S = 60.0
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
    each: Annotated[
        Literal["family", "task", "policy"] | None,
        typer.Option("--each", help="Leave out each in turn, and rank them by effect."),
    ] = None,
    effect: Annotated[
        bool, typer.Option("--effect", help="Play held-out tasks with both policies and compare.")
    ] = False,
    episodes: Annotated[int, typer.Option(min=2, help="Held-out tasks for --effect and --each.")] = 120,
    judge: Annotated[
        str | None,
        typer.Option(help="Judge of the held-out tasks; by default the one that the new run trains on."),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Leave out nothing and compute everything: the weights must be equal."),
    ] = False,
    name: Annotated[
        str | None,
        typer.Option(
            "--name", help="Name of the new run, or with --each how names begin; default: the next run-N."
        ),
    ] = None,
) -> Report:
    """Compute a run's updates again as if some of its data had never been trained on; makes a new run of the result.

    Up to the first batch that held any of it, the new run is the old one. Later episodes stay what they were.

    Example: hindcast without run-1 --family store/buy --name no-buy --effect
    """
    parent = open_run(run)
    with loading():
        from hindcast.app.runs.left_out import Choice  # loads torch, so only now
    choice = Choice(
        episodes=(*(episode or ()), *(_asked(parent.name, query) if query else ())),
        families=tuple(family or ()),
        tasks=tuple(task or ()),
        versions=tuple(policy or ()),
        query=query or "",
    )
    _require_one_choice(choice != Choice() or verdicts is not None, check=check, each=each)
    if verdicts is not None and plans == "keep":
        raise SettingsError(
            "--verdicts plans again, since other verdicts make other batches: omit --plan keep"
        )
    wanted = Wanted(plans=plans, judge=verdicts or "", episodes=episodes, truth=judge)
    if each is not None:
        ranked = asyncio.run(_rank(parent, each, wanted, name=name or parent.name))
        return Report(ranked, _ranking(ranked))
    derived, apart = asyncio.run(_derive(parent, choice, wanted, name=name, effect=effect))
    found: list[Block] = [Fields(_fields(derived))]
    if apart is not None:
        found += _effect_text(apart, derived.run)
    shown = msgspec.to_builtins(derived) | ({} if apart is None else {"effect": msgspec.to_builtins(apart)})
    return Report(shown, [*found, CAVEAT, _next(derived)])


class Wanted(NamedTuple):
    """How runs are derived and compared."""

    plans: Literal["again", "keep"]
    judge: str
    """Judge whose verdicts are trained on instead; empty: none."""
    episodes: int
    truth: str | None
    """Judge of held-out tasks; None: the derived run's."""

    def settings(self, run: RunHandle) -> Settings:
        """The settings under which held-out tasks are played."""
        settings = run.settings
        if self.truth is None:
            return settings
        judging = settings.judge.model_copy(update={"judges": (self.truth,)})
        return settings.model_copy(update={"judge": judging})


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was left out, and what that did."""

    what: str
    run: str
    """Empty: nothing was trained on it."""
    episodes: int
    effect: "Effect | None"


def _require_one_choice(chosen: bool, *, check: bool, each: str | None) -> None:
    if check and (chosen or each):
        raise SettingsError("--check leaves out nothing: omit the other choices")
    if each and chosen:
        raise SettingsError(f"--each {each} leaves out one after the other: omit the other choices")
    if not (check or each or chosen):
        raise SettingsError(
            "nothing is left out. Name it with --episode, --family, --task, --policy, --query, --verdicts or --each; --check "
            "computes everything again as it was"
        )


def _asked(run: str, query: str) -> list[str]:
    """Episodes in the first column of a query's answer."""
    with connect_read_model(run) as connection:
        try:
            found = ask_sql(connection, query, limit=MOST_EPISODES, seconds=QUERY_S).rows
        except QueryRefused as error:
            raise SettingsError(f"--query: {error}; the first column names episodes") from error
    if not found:
        raise SettingsError(f"--query returns no episode: {query}")
    return [str(row[0]) for row in found]


async def _derive(
    parent: RunHandle, choice: "Choice", wanted: Wanted, *, name: str | None, effect: bool
) -> "tuple[Derived, Effect | None]":
    from hindcast.app.runs.left_out import cost, survey

    async with parent.connect_log() as log:
        found = await survey(log, choice, judge=wanted.judge)
    at, updates, cpu_s = cost(found)
    if at >= 0:
        say(
            f"computing {updates} updates after position {at}, which took {cpu_s:.0f} s of CPU time when they were recorded, and "
            "those since the checkpoint before it"
        )
    derived = await _with_bar(parent, found, choice, wanted, name=name)
    if not effect:
        return derived, None
    from hindcast.app.evaluation.effect import effect_of

    run = open_run(derived.run, home=parent.home)
    settings = wanted.settings(run)
    requests = await _requests(parent, settings, wanted)
    before = await _played(parent, requests, settings)
    return derived, effect_of(requests, before, await _played(run, requests, settings), settings)


async def _with_bar(
    parent: RunHandle, found: "Survey", choice: "Choice", wanted: Wanted, *, name: str | None
) -> "Derived":
    from hindcast.app.runs.left_out import cost
    from hindcast.app.runs.without import derive

    at = max(cost(found)[0], 0)
    with progress_bar() as bar:
        shown = bar.add_task(f"without {choice.in_words()}"[:60], total=found.last - at)
        return await derive(
            parent,
            found,
            choice,
            plans=wanted.plans,
            judge=wanted.judge,
            name=name,
            said=say,
            progress=lambda position: bar.update(shown, completed=position - at),
        )


async def _requests(parent: RunHandle, settings: Settings, wanted: Wanted) -> "list[EpisodeRequested]":
    from hindcast.app.evaluation.effect import families_played, held_out

    return held_out(settings, await families_played(parent), episodes=wanted.episodes)


async def _played(
    run: RunHandle, requests: "Sequence[EpisodeRequested]", settings: Settings
) -> "OutcomeTally":
    from hindcast.app.evaluation.effect import play_latest

    with progress_bar() as bar:
        shown = bar.add_task(f"held-out tasks with {run.name}", total=len(requests))
        return await play_latest(
            run, requests, settings, said=lambda done, _: bar.update(shown, completed=done)
        )


async def _rank(
    parent: RunHandle, each: Literal["family", "task", "policy"], wanted: Wanted, *, name: str
) -> list[Ranked]:
    """Leave out each in turn; the largest gain first."""
    from hindcast.app.evaluation.effect import effect_of
    from hindcast.app.runs.left_out import cost, parts_of, survey

    async with parent.connect_log() as log:
        surveys = {
            what: (choice, await survey(log, choice, judge=""))
            for what, choice in (await parts_of(log, each)).items()
        }
    costs = [cost(found) for _, found in surveys.values()]
    say(
        f"{len(surveys)} runs with {sum(updates for _, updates, _ in costs)} updates, which took "
        f"{sum(cpu_s for *_, cpu_s in costs):.0f} s of CPU time when they were recorded; then "
        f"{len(surveys) + 1} times {wanted.episodes} held-out tasks"
    )
    settings = wanted.settings(parent)
    requests = await _requests(parent, settings, wanted)
    before = await _played(parent, requests, settings)
    ranked: list[Ranked] = []
    for number, (what, (choice, found)) in enumerate(surveys.items(), start=1):
        if cost(found)[0] < 0:
            ranked.append(Ranked(what=what, run="", episodes=len(found.left_out), effect=None))
            continue
        derived = await _with_bar(parent, found, choice, wanted, name=f"{name}-without-{number}"[:48])
        run = open_run(derived.run, home=parent.home)
        apart = effect_of(requests, before, await _played(run, requests, settings), settings)
        ranked.append(Ranked(what=what, run=run.name, episodes=derived.left_out, effect=apart))
    return sorted(ranked, key=lambda one: -(one.effect.whole.difference if one.effect else 0.0))


def _ranking(ranked: Sequence[Ranked]) -> Iterator[Block]:
    rows = [
        (one.what, one.episodes, *(_points(one.effect.whole) if one.effect else ("-", "-", "-")), one.run)
        for one in ranked
    ]
    yield Table(("without", "episodes", "success", "points", "95 %", "run"), rows)
    yield "Points: success on held-out tasks without it, minus the parent's; paired by task."
    yield CAVEAT


def _points(one: "FamilyEffect") -> tuple[str, str, str]:
    return (
        f"{one.parent:.0%} -> {one.derived:.0%}",
        f"{100 * one.difference:+.1f}",
        f"[{100 * one.low:+.1f}, {100 * one.high:+.1f}]",
    )


def _effect_text(apart: "Effect", run: str) -> Iterator[Block]:
    every = {"all": apart.whole} | (apart.by_family if len(apart.by_family) > 1 else {})
    yield ""
    yield Table(
        ("held-out family", "success", "points", "95 %", "tasks"),
        [(name, *_points(one), one.tasks) for name, one in every.items()],
    )
    yield (
        f"Points: {run} minus its parent at the same tasks, at temperature {apart.temperature:g}, judged by {apart.judge}."
    )


def _fields(derived: "Derived") -> list[tuple[str, object]]:
    left_out = f"{count_of(derived.left_out, 'episode')}: {derived.choice}"
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
