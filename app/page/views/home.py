"""All runs of a home: what each is and has reached, and the chosen ones over each other in one chart."""

from collections.abc import Callable, Sequence

import msgspec
from sqlalchemy import Connection

from hindcast.app.page.charts import (
    CurvePoint,
    OverlaidCurve,
    OverlaidPoint,
    evaluation_curves,
    pool_metric,
    pool_versions,
)
from hindcast.app.page.runs import OpenRuns
from hindcast.app.page.views.overview import METRICS
from hindcast.core.errors import HindcastError
from hindcast.storage.readmodel.evaluation_queries import list_evaluations
from hindcast.storage.readmodel.metrics import update_metrics
from hindcast.storage.readmodel.outcome_counts import families_by_version, tallies
from hindcast.storage.readmodel.query_parts import position_of, training_judge
from hindcast.storage.readmodel.run_queries import list_policies, run_summary

MOST_OVERLAID = 6
"""Most runs in one chart: so many lines still differ."""
HELD_OUT, ONLINE = "held-out", "online"
MEASURES = {
    HELD_OUT: "success on held-out tasks",
    ONLINE: "success of online episodes",
    **METRICS,
}
"""What can be drawn, and what it is called."""
AXES = {"update": "update", "policy": "policy version", "position": "position in the log"}
"""What it can be drawn over."""


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
    chosen: list[str]
    """Runs that are drawn over each other."""
    measure: str
    over: str
    curves: list[OverlaidCurve]
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


def _online(connection: Connection) -> list[CurvePoint]:
    judge = training_judge(connection)
    return pool_versions(
        families_by_version(tallies(connection, position_of(connection, None), judge), origin="online")
    )


def home(runs: OpenRuns, rows: RunRows, *, chosen: Sequence[str], measure: str, over: str) -> HomePage:
    """The list, and the chosen runs in one chart. Unknown names are left out, and so are runs beyond `MOST_OVERLAID`."""
    listed = rows.all()
    readable = {row.run for row in listed if not row.note}
    drawn = [name for name in dict.fromkeys(chosen) if name in readable][:MOST_OVERLAID]
    measure = measure if measure in MEASURES else HELD_OUT
    over = over if over in AXES else "update"
    curves: list[OverlaidCurve] = []
    for name in drawn:
        with runs.asking(name, None) as (_, connection, _place):
            curves += _curves(name, connection, measure, over)
    found = {curve.run for curve in curves}
    return HomePage(
        home=str(runs.home),
        runs=listed,
        chosen=drawn,
        measure=measure,
        over=over,
        curves=curves,
        without=[name for name in drawn if name not in found],
    )


def _curves(name: str, connection: Connection, measure: str, over: str) -> list[OverlaidCurve]:
    place_of = _places(connection, over)
    if measure in METRICS:
        columns = pool_metric(update_metrics(connection, names=(measure,)).get(measure, []))
        points = [
            OverlaidPoint(
                x=one.last,
                y=one.value,
                low=one.low,
                high=one.high,
                words=f"update {one.last}: {one.value:.4g}",
            )
            for one in columns
        ]
        return [OverlaidCurve(run=name, name=name, points=points)] if points else []
    if measure == ONLINE:
        named = [(name, _online(connection))]
    else:
        named = [
            (f"{name}, {one.name}", one.points) for one in evaluation_curves(list_evaluations(connection))[:1]
        ]
    return [
        OverlaidCurve(run=name, name=label, points=[_point(one, place_of) for one in points])
        for label, points in named
        if points
    ]


def _places(connection: Connection, over: str) -> Callable[[int], int]:
    """From a policy version to its place on the horizontal axis."""
    if over == "policy":
        return lambda version: version
    policies = {one.version: one for one in list_policies(connection)}

    def place(version: int) -> int:
        known = policies.get(version)
        if known is None:
            return 0
        return known.published_position if over == "position" else known.at_update or 0

    return place


def _point(one: CurvePoint, place_of: Callable[[int], int]) -> OverlaidPoint:
    versions = f"policy {one.first}" if one.first == one.last else f"policies {one.first} to {one.last}"
    return OverlaidPoint(
        x=place_of(one.last),
        y=one.rate,
        low=one.low,
        high=one.high,
        words=f"{versions}: {one.rate:.0%} [{one.low:.0%}, {one.high:.0%}] n={one.judged}",
    )
