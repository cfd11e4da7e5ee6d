"""Charts as SVG, drawn by the server: exact, readable without scripts, with points that are links. Pure.

Nothing is sampled. If there are more values than pixels, neighbors are pooled: successes and episodes are added up, and a
metric shows its lowest, highest and last value. A gap in the data is a gap in the line.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from math import ceil
from typing import TypeVar

import msgspec
from markupsafe import Markup

from hindcast.app.page.plane import Plane, drawn_out, frame, round_values, svg, tick_labels
from hindcast.core.rl.statistics import standardized
from hindcast.storage.readmodel.metrics import MetricColumn
from hindcast.storage.readmodel.outcome_counts import Families, added

Shown = TypeVar("Shown")

TALL, SMALL = 236, 122
"""Height in pixels of a success curve's and of a metric's plane, without the labels below."""
MOST_POINTS = 120
"""Most points of a success curve: six pixels each."""
MOST_COLUMNS = 300
"""Most columns of a metric: two pixels each."""
MOST_STRIPS = 40
"""Most strips of a metric that show their values on hover."""
TICKS_DOWN = 4
"""Approximate number of labels of a metric."""


class CurvePoint(msgspec.Struct, frozen=True, kw_only=True):
    """Success of one policy version, or of several successive ones."""

    first: int
    """Version."""
    last: int
    successes: int
    judged: int
    rate: float
    """Success rate with families weighted by their share of the whole curve's episodes."""
    low: float
    """Lower end of the 95 % interval of `rate`."""
    high: float


def pool_versions(played: Mapping[int, Families], *, most: int = MOST_POINTS) -> list[CurvePoint]:
    """Points of a curve from the families of each version, versions in order; counts of neighbours are added up.

    >>> played = {0: {"a": (1, 2)}, 1: {"a": (2, 2)}, 2: {"a": (0, 4)}}
    >>> [(p.first, p.last, p.successes, p.judged) for p in pool_versions(played, most=2)]
    [(0, 1, 3, 4), (2, 2, 0, 4)]
    """
    standard = added(played.values())
    judged_versions = [
        version for version, families in played.items() if any(judged for _, judged in families.values())
    ]
    size = max(1, ceil(len(judged_versions) / most))
    points = []
    for start in range(0, len(judged_versions), size):
        part = judged_versions[start : start + size]
        families = added(played[version] for version in part)
        successes, judged = (sum(counts[i] for counts in families.values()) for i in (0, 1))
        band = standardized(families, standard)
        points.append(
            CurvePoint(
                first=part[0],
                last=part[-1],
                successes=successes,
                judged=judged,
                rate=band.rate,
                low=band.low,
                high=band.high,
            )
        )
    return points


def pool_metric(told: Sequence[MetricColumn], *, most: int = MOST_COLUMNS) -> list[MetricColumn]:
    """No more columns than fit, in order: neighbours stand together, with their lowest, highest and last value.

    >>> each = [MetricColumn(first=n, last=n, updates=1, low=v, high=v, value=v) for n, v in [(1, 2.0), (2, 5.0), (3, 1.0)]]
    >>> pool_metric(each, most=1)
    [MetricColumn(first=1, last=3, updates=3, low=1.0, high=5.0, value=1.0)]
    """
    size = max(1, ceil(len(told) / most))
    if size == 1:
        return list(told)
    columns = []
    for start in range(0, len(told), size):
        part = told[start : start + size]
        columns.append(
            MetricColumn(
                first=part[0].first,
                last=part[-1].last,
                updates=sum(one.updates for one in part),
                low=min(one.low for one in part),
                high=max(one.high for one in part),
                value=part[-1].value,
            )
        )
    return columns


def success_chart(points: Sequence[CurvePoint], *, link: str, label: str) -> Markup:
    """Success by policy version with its band; every point leads to its episodes: `link` with `{version}` in it.

    Of pooled versions that is the first and the last, `3-7`.
    """
    if not points:
        return Markup("")
    plane = Plane(TALL, points[0].first, points[-1].last, 0.0, 1.0)
    shares = [0.0, 0.25, 0.5, 0.75, 1.0]
    parts = [frame(plane, shares, [f"{share:.0%}" for share in shares], below="policy version")]
    lines = []
    for stretch in _unbroken(points, lambda point: (point.first, point.last)):
        above = [plane.at(_middle(p), p.high) for p in stretch]
        under = [plane.at(_middle(p), p.low) for p in reversed(stretch)]
        if len(stretch) > 1:
            lines.append(Markup('<polygon class="band" points="{}"/>').format(" ".join(above + under)))
            line = " ".join(plane.at(_middle(p), p.rate) for p in stretch)
            lines.append(Markup('<polyline class="line" points="{}"/>').format(line))
    parts.append(drawn_out(plane, lines))
    places = [plane.x(_middle(point)) for point in points]
    for point, x, (left, right) in zip(points, places, _strips(places), strict=True):
        parts.append(
            Markup(
                '<a href="{href}"><title>{title}</title>'
                '<rect class="reach" x="{left}%" y="0" width="{wide}%" height="{tall}"/>'
                '<line class="whisker" x1="{x}%" x2="{x}%" y1="{high}" y2="{low}"/>'
                '<circle class="dot" cx="{x}%" cy="{y}" r="3.5"/></a>'
            ).format(
                href=link.format(
                    version=point.first if point.first == point.last else f"{point.first}-{point.last}"
                ),
                title=f"{_versions(point)}: {point.rate:.0%} [{point.low:.0%}, {point.high:.0%}] n={point.judged}, as played "
                f"{point.successes} of {point.judged}",
                left=f"{left:.2f}",
                wide=f"{right - left:.2f}",
                tall=plane.tall,
                x=f"{x:.2f}",
                y=f"{plane.y(point.rate):.1f}",
                high=f"{plane.y(point.high):.1f}",
                low=f"{plane.y(point.low):.1f}",
            )
        )
    return svg(parts, label, tall=plane.tall)


def metric_chart(columns: Sequence[MetricColumn], *, label: str) -> Markup:
    """A metric by update: each column's range as a bar, the last values as a line."""
    if not columns:
        return Markup("")
    low, high = min(c.low for c in columns), max(c.high for c in columns)
    ticks = round_values(low, high, most=TICKS_DOWN)
    plane = Plane(SMALL, columns[0].first, columns[-1].last, min(low, ticks[0]), max(high, ticks[-1]))
    lines = []
    bars = "".join(
        f"M{plane.across(c.last):.1f} {plane.y(c.low):.1f}V{plane.y(c.high):.1f}"
        for c in columns
        if c.first != c.last
    )
    if bars:
        lines.append(Markup('<path class="bars" d="{}"/>').format(bars))
    dots = []
    for stretch in _unbroken(columns, lambda column: (column.first, column.last)):
        if len(stretch) > 1:
            line = " ".join(plane.at(c.last, c.value) for c in stretch)
            lines.append(Markup('<polyline class="line" points="{}"/>').format(line))
        if len(stretch) == 1 or stretch[-1] is columns[-1]:
            dots.append(_dot(plane, stretch[-1], radius=3 if stretch[-1] is columns[-1] else 1.5))
    axes = frame(plane, ticks, tick_labels(ticks), below="update")
    told = _told_strips(plane, columns)
    return svg([axes, drawn_out(plane, lines), *told, *dots], label, tall=plane.tall)


def _dot(plane: Plane, column: MetricColumn, *, radius: float) -> Markup:
    return Markup('<circle class="dot" cx="{}%" cy="{}" r="{}"><title>{}</title></circle>').format(
        f"{plane.x(column.last):.2f}", f"{plane.y(column.value):.1f}", f"{radius:g}", _values(column)
    )


def _told_strips(plane: Plane, columns: Sequence[MetricColumn]) -> list[Markup]:
    """Strips that show the values of their columns on hover."""
    stretches = pool_metric(columns, most=MOST_STRIPS)
    strips = _strips([plane.x((stretch.first + stretch.last) / 2) for stretch in stretches])
    return [
        Markup('<rect class="reach" x="{}%" y="0" width="{}%" height="{}"><title>{}</title></rect>').format(
            f"{left:.2f}", f"{right - left:.2f}", plane.tall, _values(stretch)
        )
        for stretch, (left, right) in zip(stretches, strips, strict=True)
    ]


def _values(column: MetricColumn) -> str:
    if column.first == column.last:
        return f"update {column.last}: {column.value:.4g}"
    return (
        f"updates {column.first} to {column.last}: {column.value:.4g} at last, "
        f"from {column.low:.4g} to {column.high:.4g}"
    )


def _strips(places: Sequence[float]) -> Iterable[tuple[float, float]]:
    """Left and right end, in percent, of what belongs to each place, so that it is found without aiming: half the way to its
    neighbours."""
    reach = 50 / len(places)
    halves = [(one + next_one) / 2 for one, next_one in pairwise(places)]
    return pairwise([places[0] - reach, *halves, places[-1] + reach])


def _unbroken(points: Sequence[Shown], extent: Callable[[Shown], tuple[int, int]]) -> list[list[Shown]]:
    """Parts of a curve without a gap: a version without verdicts, or an update without the metric."""
    stretches: list[list[Shown]] = []
    for point in points:
        if stretches and extent(point)[0] == extent(stretches[-1][-1])[1] + 1:
            stretches[-1].append(point)
        else:
            stretches.append([point])
    return stretches


def _middle(point: CurvePoint) -> float:
    return (point.first + point.last) / 2


def _versions(point: CurvePoint) -> str:
    return f"policy {point.first}" if point.first == point.last else f"policies {point.first} to {point.last}"
