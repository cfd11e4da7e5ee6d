"""Curves of one run, to be drawn over those of other runs."""

from collections.abc import Collection, Mapping, Sequence
from urllib.parse import quote

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
    success_points,
)
from hindcast.app.page.views.axes import AXES, find_axis
from hindcast.app.page.views.overview import METRICS
from hindcast.storage.readmodel.evaluation_queries import list_evaluations
from hindcast.storage.readmodel.metrics import update_metrics
from hindcast.storage.readmodel.outcome_counts import (
    Families,
    Tally,
    families_by_version,
    training_origin,
    training_tallies,
)
from hindcast.storage.readmodel.query_parts import position_of

HELD_OUT, ONLINE = "held-out", "online"
MEASURES = {
    HELD_OUT: "success on held-out tasks",
    ONLINE: "success of online episodes",
    **METRICS,
}
"""What can be drawn, and what it is called."""


def online_points(tallied: Sequence[Tally], span: Span = None) -> list[CurvePoint]:
    """Success of online episodes by policy version."""
    return pool_versions(families_by_version(tallied, origin=training_origin(tallied)), span=span)


def run_curves(
    name: str,
    connection: Connection,
    measures: Collection[str],
    *,
    over: str,
    color: int,
    gaps: bool = False,
    versions: Span = None,
    updates: Span = None,
    families: Mapping[int, Families] | None = None,
) -> dict[str, Curve]:
    """The run's curve of each measure that it has a value of. `versions`, `updates`: the part to draw. `families`: the run's
    online episodes by version, if they are known.

    `gaps`: a version without a verdict interrupts the line of online success.
    """
    position = position_of(connection, None)
    success: dict[str, tuple[str, list[CurvePoint]]] = {}
    if ONLINE in measures:
        success[ONLINE] = (
            name,
            online_points(training_tallies(connection), versions)
            if families is None
            else pool_versions(families, span=versions),
        )
    if HELD_OUT in measures:
        for evaluated in evaluation_curves(list_evaluations(connection), span=versions)[:1]:
            success[HELD_OUT] = f"{name}, {evaluated.name}", evaluated.points
    names = tuple(one for one in measures if one in METRICS)
    recorded = update_metrics(connection, names=names) if names else {}
    metrics = {one: pool_metric(recorded.get(one, []), span=updates) for one in names}
    axis = find_axis(
        connection,
        position,
        over,
        versions={point.last for _, points in success.values() for point in points},
        numbers={column.last for columns in metrics.values() for column in columns},
    )
    found: dict[str, Curve] = {}
    for measure, (label, played) in success.items():
        origin = "online" if measure == ONLINE else "evaluation"
        link = f"/{quote(name)}/episodes?origin={origin}&policy={{version}}"
        points = success_points(played, axis, gaps=gaps and measure == ONLINE)
        found[measure] = Curve(run=name, name=label, points=points, link=link, color=color)
    for measure, columns in metrics.items():
        found[measure] = Curve(run=name, name=name, points=metric_points(columns, axis), color=color)
    return {measure: curve for measure, curve in found.items() if curve.points}


def overlay(measure: str, over: str, curves: list[Curve]) -> Chart:
    """One measure of several runs in one chart."""
    return Chart(
        label=MEASURES[measure],
        below=AXES[over],
        unit="update" if measure in METRICS else "policy",
        shares=measure not in METRICS,
        curves=curves,
    )
