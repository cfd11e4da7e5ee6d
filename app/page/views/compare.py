"""Comparison of runs: where they part, their curves over each other from there on, and the settings that differ.

Of two runs also success by version with its difference, and the updates after they part.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import msgspec
from sqlalchemy import Connection

from hindcast.app.page.charts import Chart, CurvePoint, evaluation_curves, run_colors
from hindcast.app.page.runs import PageQuery
from hindcast.app.page.views.axes import AXES
from hindcast.app.page.views.overlay import HELD_OUT, MEASURES, ONLINE, overlay, run_curves
from hindcast.core.rl.statistics import Interval, difference
from hindcast.storage.readmodel.comparison import (
    Comparison,
    Played,
    common_position,
    compare_runs,
    newest_version_and_update,
    played_by_version,
    settings_apart,
)
from hindcast.storage.readmodel.evaluation_queries import list_evaluations
from hindcast.storage.readmodel.outcome_counts import training_tallies
from hindcast.storage.readmodel.task_queries import Attempt, newest_attempts

METRICS = ("loss", "kl", "entropy_estimate", "gradient_norm", "reward_mean")
"""Metrics of updates that are compared if a run has them."""
MOST_UPDATES = 60
"""Most updates shown after the runs diverge."""
MOST_TASKS = 10
"""Most tasks that both runs attempted which are shown."""
MOST_VERDICTS = 500
"""Newest verdicts of each run among which those tasks are looked for."""
MOST_POINTS = 60
"""Most rows of success; of more versions, neighbors are pooled."""
LAST = 2**62
"""End of a part of a curve that has no end."""


class ComparedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One of the runs."""

    run: str
    color: int
    """Number of its color, the same on all pages."""


class SettingOfRuns(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that is not the same in all runs."""

    key: str
    values: list[Any]
    """One for each run; None: the run does not have it."""


class ComparedSuccess(msgspec.Struct, frozen=True, kw_only=True):
    """Newest success of two runs on held-out tasks, at the same temperature."""

    measured: str
    """How the answers were sampled: `greedy`, or `temperature 1`."""
    left: CurvePoint
    right: CurvePoint
    change: Interval
    """Right minus left with its 95 % interval; the two are taken as independent."""


class SameTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task that two runs attempted after they part."""

    task: str
    left: Attempt
    """The newest judged one."""
    right: Attempt


class ComparePage(msgspec.Struct, frozen=True, kw_only=True):
    """The page's values; all runs in their current state."""

    others: list[str]
    """Runs of this home to compare with."""
    runs: list[ComparedRun]
    """Compared runs, this one last; empty: no other run was chosen, and this one is no fork."""
    over: str
    """Name of the axis."""
    parted_at: int | None
    """Last position that the logs of all share; None: they have no common beginning."""
    charts: list[Chart]
    """One for each measure that a run has a value of after the runs part."""
    settings: list[SettingOfRuns]
    held_out: ComparedSuccess | None
    """Of two runs; None: more are chosen, or none, or they were not both evaluated."""
    same_tasks: list[SameTask]
    """Of two runs: tasks that both attempted lately, those with different outcomes first; at most `MOST_TASKS`."""
    comparison: Comparison | None
    """Details of two runs; None: more are chosen, or none."""
    metrics: list[str]
    """Names that occur in the updates shown."""
    updates_shown: int


def compare(ask: PageQuery) -> ComparePage:
    """Compare this run with the chosen ones (`with`), or with the one it was forked from, or with the one made before it.

    Raises:
        NoSuchRun, ReadModelUnavailable: about another run.

    """
    fork = ask.handle.fork
    names = ask.home_runs.names()
    others = [name for name in names if name != ask.run.name]
    chosen = list(dict.fromkeys(ask.words("with")))
    if not chosen and fork is not None and fork.parent in others:
        chosen = [fork.parent]
    elif not chosen:
        chosen = _run_before(names, ask.run.name)
    over = ask.word("over") or ""
    over = over if over in AXES else "update"
    if not chosen:
        return ComparePage(
            others=others,
            runs=[],
            over=over,
            parted_at=None,
            charts=[],
            settings=[],
            held_out=None,
            same_tasks=[],
            comparison=None,
            metrics=[],
            updates_shown=0,
        )
    together = [*chosen, ask.run.name]
    colors = run_colors(names, together)
    with ExitStack() as stack:
        connections = [stack.enter_context(ask.home_runs.asking(name, None))[1] for name in chosen]
        connections.append(ask.connection)
        parted_at = common_position(connections)
        played = [played_by_version(training_tallies(connection)) for connection in connections]
        charts = _charts(ask, together, connections, played, parted_at, over, colors)
        apart = settings_apart(connections)
        held_out = _held_out(connections[0], ask.connection) if len(chosen) == 1 else None
        found, same_tasks = None, []
        if len(chosen) == 1:
            same_tasks = _same_tasks(connections[0], ask.connection, parted_at or 0)
            found = compare_runs(
                connections[0],
                ask.connection,
                played=(played[0], played[1]),
                most_points=MOST_POINTS,
                most_updates=MOST_UPDATES,
            )
    return ComparePage(
        others=others,
        runs=[ComparedRun(run=name, color=colors[name]) for name in together],
        over=over,
        parted_at=parted_at,
        charts=charts,
        settings=[SettingOfRuns(key=key, values=values) for key, values in apart.items()],
        held_out=held_out,
        same_tasks=same_tasks,
        comparison=found,
        metrics=[
            n
            for n in METRICS
            if found is not None
            and any(n in (step.left or {}) or n in (step.right or {}) for step in found.updates)
        ],
        updates_shown=0 if found is None else len(found.updates),
    )


def _run_before(names: Sequence[str], name: str) -> list[str]:
    """The run made before this one, or after the first; none if there is no other. `names`: oldest first."""
    place = names.index(name)
    return [*names[:place][-1:], *names[place + 1 :]][:1]


def _same_tasks(left: Connection, right: Connection, parted_at: int) -> list[SameTask]:
    ours, theirs = (newest_attempts(one, after=parted_at, limit=MOST_VERDICTS) for one in (left, right))
    both = [SameTask(task=task, left=ours[task], right=theirs[task]) for task in ours if task in theirs]
    return sorted(both, key=lambda one: one.left.outcome == one.right.outcome)[:MOST_TASKS]


def _held_out(left: Connection, right: Connection) -> ComparedSuccess | None:
    """None: one of the runs was not evaluated at the other's temperature."""
    ours, theirs = (
        {curve.name: curve.points for curve in evaluation_curves(list_evaluations(one))}
        for one in (left, right)
    )
    for name, points in ours.items():
        if points and theirs.get(name):
            one, other = points[-1], theirs[name][-1]
            change = difference(one.successes, one.judged, other.successes, other.judged)
            return ComparedSuccess(measured=name, left=one, right=other, change=change)
    return None


def _charts(
    ask: PageQuery,
    names: Sequence[str],
    connections: Sequence[Connection],
    played: Sequence[Mapping[int, Played]],
    parted_at: int | None,
    over: str,
    colors: dict[str, int],
) -> list[Chart]:
    """A chart for each measure, of what the runs did after they part, or of the part of it that the address names."""
    spans = [ask.span(name) or (0, LAST) for name in ("versions", "updates")]
    measures = (HELD_OUT, ONLINE, *(one for one in MEASURES if one in METRICS))
    drawn = []
    for name, connection, known in zip(names, connections, played, strict=True):
        version, update = (
            (0, 0) if parted_at is None else newest_version_and_update(connection, as_of=parted_at)
        )
        drawn.append(
            run_curves(
                name,
                connection,
                measures,
                over=over,
                color=colors[name],
                gaps=True,
                versions=(max(version, spans[0][0]), spans[0][1]),
                updates=(max(update, spans[1][0]), spans[1][1]),
                families={version: one.families for version, one in known.items()},
            )
        )
    charts = (
        overlay(measure, over, [curves[measure] for curves in drawn if measure in curves])
        for measure in measures
    )
    return [chart for chart in charts if chart.curves]
