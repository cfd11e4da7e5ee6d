"""All runs of a home: what each is and has reached, and the chosen ones over each other in one chart."""

from collections.abc import Sequence
from urllib.parse import quote

import msgspec
from sqlalchemy import Connection

from hindcast.app.page.charts import (
    Chart,
    Curve,
    CurvePoint,
    Span,
    evaluation_curves,
    metric_points,
    pool_metric,
    pool_versions,
    run_colors,
    success_points,
)
from hindcast.app.page.runs import OpenRuns
from hindcast.app.page.views.axes import AXES, find_axis
from hindcast.app.page.views.overview import METRICS
from hindcast.core.errors import HindcastError
from hindcast.storage.readmodel.evaluation_queries import list_evaluations
from hindcast.storage.readmodel.metrics import update_metrics
from hindcast.storage.readmodel.outcome_counts import families_by_version, tallies, training_origin
from hindcast.storage.readmodel.query_parts import position_of, training_judge
from hindcast.storage.readmodel.run_queries import run_summary

DRAWN_FIRST = 3
"""Runs drawn before a visitor chooses."""
MOST_OVERLAID = 6
"""Most runs in one chart: so many lines still differ."""
HELD_OUT, ONLINE = "held-out", "online"
MEASURES = {
    HELD_OUT: "success on held-out tasks",
    ONLINE: "success of online episodes",
    **METRICS,
}
"""What can be drawn, and what it is called."""


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """One run in the list."""

    run: str
    state: str
    """`running`, `paused`, `finished`, `stopped`, or `not read` (see `note`)."""
    recipe: str
    parent: str | None
    forked_at: int | None
    updates: int
    policy: int | None
    episodes: int
    updates_per_minute: float | None
    """None: it is not running."""
    started_ns: int | None
    measured: str
    """What `success` and `curve` are: on held-out tasks, and how they are sampled, or of online episodes; empty: no verdict."""
    success: CurvePoint | None
    """The newest."""
    curve: list[CurvePoint]
    note: str = ""
    """Why it cannot be read."""


class HomePage(msgspec.Struct, frozen=True, kw_only=True):
    """Values of the first page."""

    home: str
    runs: list[RunRow]
    """The one started last first."""
    chosen: dict[str, int]
    """Runs that are drawn over each other, with the numbers of their colors."""
    measure: str
    over: str
    chart: Chart
    without: list[str]
    """Chosen runs that have nothing of the measure."""


class RunRows:
    """The rows of runs, each kept until its run has new events."""

    def __init__(self, runs: OpenRuns) -> None:
        self._runs = runs
        self._known: dict[str, tuple[tuple[int, bool], RunRow]] = {}

    def all(self) -> list[RunRow]:
        """One for each run of the home, the one started last first; one that cannot be read says why."""
        rows: list[RunRow] = []
        for name in self._runs.names():
            try:
                rows.append(self._row(name))
            except (HindcastError, OSError) as error:
                rows.append(_unreadable(name, str(error)))
        return sorted(rows, key=lambda row: -(row.started_ns or 0))

    def _row(self, name: str) -> RunRow:
        with self._runs.asking(name, None) as (found, connection, place):
            stamp = place.reached, found.handle.is_running()
            known = self._known.get(name)
            if known is None or known[0] != stamp:
                known = self._known[name] = stamp, _row(name, connection, running=stamp[1])
            return known[1]


def _row(name: str, connection: Connection, *, running: bool) -> RunRow:
    summary = run_summary(connection)
    held_out = evaluation_curves(list_evaluations(connection))
    online = [] if held_out else _online(connection)
    curve = held_out[0].points if held_out else online
    if running:
        state = "paused" if summary.pauses else "running"
    else:
        state = "finished" if summary.state == "finished" else "stopped"
    return RunRow(
        run=name,
        state=state,
        recipe=summary.recipe or "",
        parent=summary.parent,
        forked_at=summary.forked_at,
        updates=summary.updates,
        policy=summary.policy_version,
        episodes=sum(summary.episodes.values()),
        updates_per_minute=summary.throughput.updates_per_minute if running else None,
        started_ns=summary.started_ns,
        measured=f"held-out, {held_out[0].name}" if held_out else "online" if online else "",
        success=curve[-1] if curve else None,
        curve=curve,
    )


def _unreadable(name: str, note: str) -> RunRow:
    return RunRow(
        run=name,
        state="not read",
        recipe="",
        parent=None,
        forked_at=None,
        updates=0,
        policy=None,
        episodes=0,
        updates_per_minute=None,
        started_ns=None,
        measured="",
        success=None,
        curve=[],
        note=note,
    )


def _online(connection: Connection, span: Span = None) -> list[CurvePoint]:
    judge = training_judge(connection)
    known = tallies(connection, position_of(connection, None), judge)
    return pool_versions(families_by_version(known, origin=training_origin(known)), span=span)


def home(
    runs: OpenRuns, rows: RunRows, *, chosen: Sequence[str] | None, measure: str, over: str, span: Span
) -> HomePage:
    """The list, and the chosen runs, or a part of them, in one chart. Unknown names are left out, and so are runs beyond `MOST_OVERLAID`.

    `chosen`: None: the runs started last that have been evaluated, or if none has, those with online episodes.
    """
    listed = rows.all()
    if chosen is None:
        with_curve = [row for row in listed if row.curve]
        evaluated = [row for row in with_curve if not row.measured.startswith(ONLINE)]
        chosen = [row.run for row in (evaluated or with_curve)[:DRAWN_FIRST]]
        measure = HELD_OUT if evaluated else ONLINE
    readable = {row.run for row in listed if not row.note}
    drawn = [name for name in dict.fromkeys(chosen) if name in readable][:MOST_OVERLAID]
    colors = run_colors(runs.names(), drawn)
    measure = measure if measure in MEASURES else HELD_OUT
    over = over if over in AXES else "update"
    curves: list[Curve] = []
    for name in drawn:
        with runs.asking(name, None) as (_, connection, place):
            curve = _curve(name, connection, place.position, measure, over, span)
        if curve is not None:
            curves.append(msgspec.structs.replace(curve, color=colors[name]))
    found = {curve.run for curve in curves}
    return HomePage(
        home=str(runs.home),
        runs=listed,
        chosen={name: colors[name] for name in drawn},
        measure=measure,
        over=over,
        chart=Chart(
            label=MEASURES[measure],
            below=AXES[over],
            unit="update" if measure in METRICS else "policy",
            shares=measure not in METRICS,
            curves=curves,
        ),
        without=[name for name in drawn if name not in found],
    )


def _curve(
    name: str, connection: Connection, position: int, measure: str, over: str, span: Span
) -> Curve | None:
    """The run's curve of a measure; None: it has no value of it."""
    if measure in METRICS:
        columns = pool_metric(update_metrics(connection, names=(measure,)).get(measure, []), span=span)
        axis = find_axis(connection, position, over, numbers={one.last for one in columns})
        points = metric_points(columns, axis)
        return Curve(run=name, name=name, points=points) if points else None
    label, played = name, list[CurvePoint]()
    if measure == ONLINE:
        played = _online(connection, span)
    else:
        for evaluated in evaluation_curves(list_evaluations(connection), span=span)[:1]:
            label, played = f"{name}, {evaluated.name}", evaluated.points
    axis = find_axis(connection, position, over, versions={one.last for one in played})
    points = success_points(played, axis, gaps=False)
    origin = "online" if measure == ONLINE else "evaluation"
    link = f"/{quote(name)}/episodes?origin={origin}&policy={{version}}"
    return Curve(run=name, name=label, points=points, link=link) if points else None
