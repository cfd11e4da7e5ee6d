"""Comparison of two runs: where they diverge, settings that differ, success by version, and updates after that."""

from collections.abc import Mapping
from urllib.parse import quote

import msgspec

from hindcast.app.page.charts import NATURAL, Chart, Curve, CurvePoint, run_colors, success_points
from hindcast.app.page.runs import PageQuery
from hindcast.app.page.views.axes import AXES
from hindcast.storage.readmodel.comparison import ComparedPoint, Comparison, compare_runs

METRICS = ("loss", "kl", "entropy_estimate", "gradient_norm", "reward_mean")
"""Metrics of updates that are compared if both runs have them."""
MOST_UPDATES = 60
"""Most updates shown after the runs diverge."""
MOST_POINTS = 60
"""Most rows of success; of more versions, neighbors are pooled."""


class ComparePage(msgspec.Struct, frozen=True, kw_only=True):
    """The page's values; both runs in their current state."""

    others: list[str]
    """Runs of this home to compare with."""
    comparison: Comparison | None
    """None: no other run was chosen, and this one is no fork."""
    chart: Chart | None
    """Success of both runs, over each other."""
    metrics: list[str]
    """Names that occur in the updates shown."""
    updates_shown: int


def compare(ask: PageQuery) -> ComparePage:
    """Compare this run (right) with the chosen one, or the one it was forked from (left).

    Raises:
        NoSuchRun, ReadModelUnavailable: about the other run.

    """
    fork = ask.handle.fork
    others = [name for name in ask.home_runs.names() if name != ask.run.name]
    chosen = ask.word("with") or (fork.parent if fork is not None and fork.parent in others else None)
    if chosen is None:
        return ComparePage(others=others, comparison=None, chart=None, metrics=[], updates_shown=0)
    with ask.home_runs.asking(chosen, None) as (_, left, _place):
        found = compare_runs(left, ask.connection, most_points=MOST_POINTS, most_updates=MOST_UPDATES)
    return ComparePage(
        others=others,
        comparison=found,
        chart=_chart(found, run_colors(ask.home_runs.names(), (found.left, found.right))),
        metrics=[
            n
            for n in METRICS
            if any(n in (step.left or {}) or n in (step.right or {}) for step in found.updates)
        ],
        updates_shown=len(found.updates),
    )


def _chart(found: Comparison, colors: Mapping[str, int]) -> Chart:
    curves = [
        Curve(
            run=name,
            name=name,
            points=success_points(_points(found.success, side), NATURAL, gaps=True),
            color=colors[name],
            link=f"/{quote(name)}/episodes?origin=online&policy={{version}}",
        )
        for name, side in ((found.left, "left"), (found.right, "right"))
    ]
    return Chart(
        label="Success by policy version", below=AXES["policy"], unit="policy", shares=True, curves=curves
    )


def _points(points: tuple[ComparedPoint, ...], side: str) -> list[CurvePoint]:
    """One run's points that have a verdict, with the versions of both."""
    sides = [(point, getattr(point, side), getattr(point, f"{side}_weighted")) for point in points]
    return [
        CurvePoint(
            first=point.version,
            last=point.last_version,
            successes=one.successes,
            judged=one.judged,
            rate=weighted.rate,
            low=weighted.low,
            high=weighted.high,
        )
        for point, one, weighted in sides
        if weighted is not None
    ]
