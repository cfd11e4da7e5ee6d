"""Charts as SVG, drawn by the server: exact, readable without scripts, points that are links. Pure.

Nothing is sampled. Where there are more values than pixels, neighbours are pooled: successes and episodes are added up, and
of a metric the lowest, highest and last value of the stretch are drawn. A gap in the data is a gap in the line.
"""

from collections.abc import Sequence
from math import ceil, log10

import msgspec
from markupsafe import Markup

from core.statistics import wilson
from storage.readmodel.answers import MetricColumn

WIDE, SMALL = (1080, 260), (360, 150)
"""Width and height of a success curve and of a metric, in the pixels that they are shown with."""
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 10, 24
MOST_POINTS = 120
"""Of a success curve: six pixels each."""
MOST_COLUMNS = 300
"""Of a metric: two pixels each."""


class CurvePoint(msgspec.Struct, frozen=True, kw_only=True):
    """Success of one policy version, or of several that follow each other."""

    first: int
    """Version."""
    last: int
    successes: int
    judged: int
    rate: float
    low: float
    """Of the 95 % Wilson interval."""
    high: float


def pool_versions(counts: Sequence[tuple[int, int, int]], *, most: int = MOST_POINTS) -> list[CurvePoint]:
    """Points of a curve from (version, successes, judged) in order of versions; counts of neighbours are added up.

    >>> [(p.first, p.last, p.successes, p.judged) for p in pool_versions([(0, 1, 2), (1, 2, 2), (2, 0, 4)], most=2)]
    [(0, 1, 3, 4), (2, 2, 0, 4)]
    """
    told = [one for one in counts if one[2]]
    size = max(1, ceil(len(told) / most))
    points = []
    for start in range(0, len(told), size):
        part = told[start : start + size]
        successes, judged = sum(one[1] for one in part), sum(one[2] for one in part)
        band = wilson(successes, judged)
        points.append(
            CurvePoint(
                first=part[0][0],
                last=part[-1][0],
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
    place = _Plane(WIDE, points[0].first, points[-1].last, 0.0, 1.0)
    parts = [_frame(place, [0.0, 0.25, 0.5, 0.75, 1.0], percent=True, below="policy version")]
    for stretch in _unbroken(points):
        above = [place.at(_middle(p), p.high) for p in stretch]
        under = [place.at(_middle(p), p.low) for p in reversed(stretch)]
        if len(stretch) > 1:
            parts.append(Markup('<polygon class="band" points="{}"/>').format(" ".join(above + under)))
            line = " ".join(place.at(_middle(p), p.rate) for p in stretch)
            parts.append(Markup('<polyline class="line" points="{}"/>').format(line))
    for point in points:
        x, y = place.x(_middle(point)), place.y(point.rate)
        parts.append(
            Markup(
                '<a href="{href}"><line class="whisker" x1="{x}" x2="{x}" y1="{high}" y2="{low}"/>'
                '<circle class="dot" cx="{x}" cy="{y}" r="3.5"><title>{title}</title></circle></a>'
            ).format(
                href=link.format(
                    version=point.first if point.first == point.last else f"{point.first}-{point.last}"
                ),
                x=f"{x:.1f}",
                y=f"{y:.1f}",
                high=f"{place.y(point.high):.1f}",
                low=f"{place.y(point.low):.1f}",
                title=f"{_versions(point)}: {point.rate:.0%} [{point.low:.0%}, {point.high:.0%}] n={point.judged}",
            )
        )
    return svg(parts, label, place.size)


def metric_chart(columns: Sequence[MetricColumn], *, label: str) -> Markup:
    """A metric by update: lowest to highest of each column as a bar, the last value as a line."""
    if not columns:
        return Markup("")
    low, high = min(c.low for c in columns), max(c.high for c in columns)
    ticks = _ticks(low, high, most=4)
    place = _Plane(SMALL, columns[0].first, columns[-1].last, min(low, ticks[0]), max(high, ticks[-1]))
    parts = [_frame(place, ticks, percent=False, below="update")]
    bars = "".join(
        f"M{place.x(c.last):.1f} {place.y(c.low):.1f}V{place.y(c.high):.1f}"
        for c in columns
        if c.first != c.last
    )
    if bars:
        parts.append(Markup('<path class="bars" d="{}"/>').format(bars))
    line = " ".join(place.at(c.last, c.value) for c in columns)
    parts.append(Markup('<polyline class="line" points="{}"/>').format(line))
    last = columns[-1]
    parts.append(
        Markup('<circle class="dot" cx="{}" cy="{}" r="3"><title>{}</title></circle>').format(
            f"{place.x(last.last):.1f}",
            f"{place.y(last.value):.1f}",
            f"update {last.last}: {last.value:.4g}",
        )
    )
    return svg(parts, label, place.size)


class _Plane:
    """From values to pixels."""

    def __init__(self, size: tuple[int, int], left: float, right: float, bottom: float, top: float) -> None:
        self.size = size
        self.left, self.right, self.bottom, self.top = left, right, bottom, top

    def x(self, value: float) -> float:
        wide = self.size[0] - LEFT - RIGHT
        if self.right == self.left:
            return LEFT + wide / 2
        return LEFT + wide * (value - self.left) / (self.right - self.left)

    def y(self, value: float) -> float:
        tall = self.size[1] - TOP - BOTTOM
        if self.top == self.bottom:
            return TOP + tall / 2
        return TOP + tall * (self.top - value) / (self.top - self.bottom)

    def at(self, x: float, y: float) -> str:
        return f"{self.x(x):.1f},{self.y(y):.1f}"


def _frame(place: _Plane, ticks: Sequence[float], *, percent: bool, below: str) -> Markup:
    """Grid lines with their values, and what the horizontal axis counts."""
    parts = [
        Markup(
            '<path class="grid" d="M{} {}H{}"/><text class="tick" x="{}" y="{}" text-anchor="end">{}</text>'
        ).format(
            LEFT,
            f"{place.y(tick):.1f}",
            place.size[0] - RIGHT,
            LEFT - 6,
            f"{place.y(tick) + 4:.1f}",
            f"{tick:.0%}" if percent else f"{tick:.3g}",
        )
        for tick in ticks
    ]
    wholes = sorted(
        {round(tick) for tick in _ticks(place.left, place.right) if place.left <= tick <= place.right}
    )
    parts += [
        Markup('<text class="tick" x="{}" y="{}" text-anchor="middle">{}</text>').format(
            f"{place.x(tick):.1f}", place.size[1] - 6, tick
        )
        for tick in wholes
    ]
    parts.append(
        Markup('<text class="axis" x="{}" y="{}" text-anchor="end">{}</text>').format(
            place.size[0] - RIGHT, place.size[1] - BOTTOM - 6, below
        )
    )
    return Markup("").join(parts)


def _ticks(low: float, high: float, *, most: int = 8) -> list[float]:
    """About `most` round values from at or below `low` to at or above `high`."""
    span = high - low or abs(high) or 1.0
    rough = span / (most - 1)
    size = 10.0 ** int(log10(rough) // 1)
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough)
    first = int(low // step)
    count = ceil(high / step) - first
    return [step * (first + number) for number in range(count + 1)]


def _unbroken(points: Sequence[CurvePoint]) -> list[list[CurvePoint]]:
    """Stretches without a version between them that has no verdict."""
    stretches: list[list[CurvePoint]] = []
    for point in points:
        if stretches and point.first == stretches[-1][-1].last + 1:
            stretches[-1].append(point)
        else:
            stretches.append([point])
    return stretches


def _middle(point: CurvePoint) -> float:
    return (point.first + point.last) / 2


def _versions(point: CurvePoint) -> str:
    return f"policy {point.first}" if point.first == point.last else f"policies {point.first} to {point.last}"


def svg(parts: Sequence[Markup], label: str, size: tuple[int, int]) -> Markup:
    """A picture that grows with its place; `label` for those who do not see it."""
    return Markup('<svg class="chart" viewBox="0 0 {} {}" role="group" aria-label="{}">{}</svg>').format(
        *size, label, Markup("").join(parts)
    )
