"""All runs of a home: what each is and has reached, and the chosen ones over each other in one chart."""

from collections.abc import Sequence

import msgspec
from sqlalchemy import Connection

from hindcast.app.page.charts import (
    MOST_COLORS,
    Chart,
    Curve,
    CurvePoint,
    Span,
    evaluation_curves,
    run_colors,
)
from hindcast.app.page.runs import OpenRuns
from hindcast.app.page.views.axes import AXES
from hindcast.app.page.views.overlay import HELD_OUT, MEASURES, ONLINE, online_points, overlay, run_curves
from hindcast.core.errors import HindcastError
from hindcast.storage.readmodel.evaluation_queries import list_evaluations
from hindcast.storage.readmodel.outcome_counts import training_tallies
from hindcast.storage.readmodel.run_queries import run_status

DRAWN_FIRST = 3
"""Runs drawn before a visitor chooses."""
MOST_OVERLAID = MOST_COLORS
"""Most runs in one chart: so many lines still differ."""


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
    tallied = training_tallies(connection)
    summary = run_status(connection, tallied=tallied)
    held_out = evaluation_curves(list_evaluations(connection))
    online = [] if held_out else online_points(tallied)
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
        with runs.asking(name, None) as (_, connection, _place):
            drawn_of = run_curves(
                name, connection, (measure,), over=over, color=colors[name], versions=span, updates=span
            )
        curves += drawn_of.values()
    found = {curve.run for curve in curves}
    return HomePage(
        home=str(runs.home),
        runs=listed,
        chosen={name: colors[name] for name in drawn},
        measure=measure,
        over=over,
        chart=overlay(measure, over, curves),
        without=[name for name in drawn if name not in found],
    )
