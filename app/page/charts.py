"""Charts as SVG, drawn by the server: exact, readable without scripts, with points that are links. Pure.

Nothing is sampled. If there are more values than pixels, neighbors are pooled: successes and episodes are added up, and a
metric shows its lowest, highest and last value. A gap in the data is a gap in the line.

A chart has a fixed height and the width of its container: horizontal places are in percent, vertical ones in pixels. So
text, dots and lines keep their size on a phone; only lines of many points (`stretched`) are scaled. The margins for labels
are the chart's padding in page.css.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from math import ceil, floor, log10
from typing import TypeVar

import msgspec
from markupsafe import Markup

from hindcast.app.evaluation.evaluation_lines import temperature_in_words
from hindcast.core.rl.statistics import standardized, wilson
from hindcast.storage.readmodel.evaluation_queries import EvaluationRate, EvaluationRow
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
DRAWN_OUT = 1000
"""Horizontal units of scaled lines: finer than pixels."""
TICKS_ACROSS = 8
"""Approximate number of labels of the horizontal axis."""
LONG_LABELS = 10_000
"""Numbers from here on take the place of two labels on a phone."""
SHORT = 4
"""Decimals at most before a label is written with an exponent."""
SLACK = 0.01
"""Share of the distance of two labels: a value beyond a label by less, such as a KL of -1e-9, needs no further label."""


class Plane:
    """Maps values to places in a chart."""

    def __init__(self, tall: int, left: float, right: float, bottom: float, top: float) -> None:
        self.tall = tall
        self.left, self.right, self.bottom, self.top = left, right, bottom, top

    def x(self, value: float) -> float:
        """Percent from the left."""
        return 50.0 if self.right == self.left else 100 * (value - self.left) / (self.right - self.left)

    def across(self, value: float) -> float:
        """Horizontal place in the units of scaled lines."""
        return self.x(value) * DRAWN_OUT / 100

    def y(self, value: float) -> float:
        """Pixels from the top."""
        if self.top == self.bottom:
            return self.tall / 2
        return self.tall * (self.top - value) / (self.top - self.bottom)

    def at(self, x: float, y: float) -> str:
        """A point of a scaled line."""
        return f"{self.across(x):.1f},{self.y(y):.1f}"


def drawn_out(plane: Plane, lines: Sequence[Markup]) -> Markup:
    """Lines of many points, as wide as the chart; their strokes keep their width."""
    return Markup(
        '<svg class="stretched" width="100%" height="{}" viewBox="0 0 {} {}" preserveAspectRatio="none">{}</svg>'
    ).format(plane.tall, DRAWN_OUT, plane.tall, Markup("").join(lines))


def frame(plane: Plane, ticks: Sequence[float], labels: Sequence[str], *, below: str) -> Markup:
    """Grid lines with their values, and below them what the horizontal axis counts."""
    parts = [
        Markup(
            '<line class="grid" x1="0" x2="100%" y1="{y}" y2="{y}"/>'
            '<text class="tick" x="-6" y="{foot}" text-anchor="end">{label}</text>'
        ).format(y=f"{plane.y(tick):.1f}", foot=f"{plane.y(tick) + 4:.1f}", label=label)
        for tick, label in zip(ticks, labels, strict=True)
    ]
    most = TICKS_ACROSS if plane.right < LONG_LABELS else TICKS_ACROSS // 2
    wholes = sorted(
        {
            round(tick)
            for tick in round_values(plane.left, plane.right, most=most)
            if plane.left <= tick <= plane.right
        }
    )
    parts += [
        Markup('<text class="tick" x="{}%" y="{}" text-anchor="middle">{}</text>').format(
            f"{plane.x(tick):.2f}", plane.tall + 16, tick
        )
        for tick in wholes
    ]
    # in a row of its own: nothing that is drawn comes there
    parts.append(
        Markup('<text class="axis" x="100%" y="{}" text-anchor="end">{}</text>').format(
            plane.tall + 31, below
        )
    )
    return Markup("").join(parts)


def round_values(low: float, high: float, *, most: int) -> list[float]:
    """About `most` round values from about `low` or below to about `high` or above."""
    span = high - low or abs(high) or 1.0
    rough = span / (most - 1)
    size = 10.0 ** int(log10(rough) // 1)
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough * (1 - SLACK))
    first = floor(low / step + SLACK)
    count = ceil(high / step - SLACK) - first
    return [step * (first + number) for number in range(count + 1)]


def tick_labels(ticks: Sequence[float]) -> list[str]:
    """Evenly spaced values as labels that differ, with the decimals that their distance needs.

    >>> tick_labels([-0.0002, 0.0, 0.0002]), tick_labels([12.34, 12.345]), tick_labels([0, 2e-7, 4e-7])
    (['−0.0002', '0', '0.0002'], ['12.340', '12.345'], ['0', '2e-7', '4e-7'])
    """
    step = ticks[1] - ticks[0] if len(ticks) > 1 else abs(ticks[0]) / 10 or 1.0
    power = floor(log10(abs(step) * (1 + 1e-9)))
    largest = max(abs(tick) for tick in ticks)
    digits = max(0, floor(log10(largest)) - power) if largest else 0
    plain = power >= -SHORT and largest < 10**6
    return [
        _signed(
            "0" if not round(tick / step) else f"{tick:.{max(0, -power)}f}" if plain else _power(tick, digits)
        )
        for tick in ticks
    ]


def _power(value: float, digits: int) -> str:
    """A number with an exponent, as short as possible: `2e-7`."""
    mantissa, _, power = f"{value:.{digits}e}".partition("e")
    whole, point, decimals = mantissa.partition(".")
    return f"{whole}{(point + decimals).rstrip('0').rstrip('.')}e{int(power)}"


def _signed(number: str) -> str:
    """A number with a visible sign as wide as a digit."""
    return number.replace("-", "−", 1) if number.startswith("-") else number


def svg(parts: Sequence[Markup], label: str, *, tall: int, kind: str = "") -> Markup:
    """A picture as wide as its place, its plane `tall` pixels high; `label` for those who do not see it."""
    return Markup('<svg class="{}" height="{}" role="group" aria-label="{}">{}</svg>').format(
        f"chart {kind}".strip(), tall, label, Markup("").join(parts)
    )


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


class EvaluationCurve(msgspec.Struct, frozen=True, kw_only=True):
    """Success on held-out tasks at one temperature."""

    name: str
    """`greedy`, or `temperature 1`."""
    points: list[CurvePoint]
    """One for each evaluation, or for several successive ones."""


def evaluation_curves(rows: Sequence[EvaluationRow], *, most: int = MOST_POINTS) -> list[EvaluationCurve]:
    """A curve for each temperature of the evaluations; counts of neighbors are added up where there are more than `most`."""
    rates: dict[float, list[tuple[int, EvaluationRate]]] = {}
    for row in rows:
        for rate in row.rates:
            if rate.judged:
                rates.setdefault(rate.temperature, []).append((row.version, rate))
    return [
        EvaluationCurve(name=temperature_in_words(temperature), points=_evaluation_points(listed, most=most))
        for temperature, listed in rates.items()
    ]


def _evaluation_points(listed: Sequence[tuple[int, EvaluationRate]], *, most: int) -> list[CurvePoint]:
    size = max(1, ceil(len(listed) / most))
    points = []
    for start in range(0, len(listed), size):
        part = listed[start : start + size]
        successes, judged = sum(rate.successes for _, rate in part), sum(rate.judged for _, rate in part)
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


APART = 5
"""Pixels between the marks of two curves at one version."""


def evaluation_chart(curves: Sequence[EvaluationCurve], *, link: str, label: str) -> Markup:
    """Success on held-out tasks by policy version, a curve with its band for each temperature; marks differ in form.

    A version leads to the episodes of its evaluation: `link` with `{version}` in it.
    """
    told = sorted({point.last: point for curve in curves for point in curve.points}.items())
    if not told:
        return Markup("")
    plane = Plane(TALL, told[0][0], told[-1][0], 0.0, 1.0)
    shares = [0.0, 0.25, 0.5, 0.75, 1.0]
    parts = [frame(plane, shares, [f"{share:.0%}" for share in shares], below="policy version")]
    lines = []
    for number, curve in enumerate(curves):
        above = [plane.at(p.last, p.high) for p in curve.points]
        under = [plane.at(p.last, p.low) for p in reversed(curve.points)]
        line = " ".join(plane.at(p.last, p.rate) for p in curve.points)
        if len(curve.points) > 1:
            lines.append(
                Markup(
                    '<g class="curve-{}"><polygon class="band" points="{}"/><polyline class="line" points="{}"/></g>'
                ).format(number, " ".join(above + under), line)
            )
    parts.append(drawn_out(plane, lines))
    strips = _strips([plane.x(version) for version, _ in told])
    for (version, point), (left, right) in zip(told, strips, strict=True):
        marks, words = [], []
        for number, curve in enumerate(curves):
            for own in curve.points:
                if own.last == version:
                    marks.append(_evaluation_mark(plane, own, number, of=len(curves)))
                    words.append(
                        f"{curve.name} {own.rate:.0%} [{own.low:.0%}, {own.high:.0%}] n={own.judged}"
                    )
        parts.append(
            Markup(
                '<a href="{}"><title>{}</title><rect class="reach" x="{}%" y="0" width="{}%" height="{}"/>{}</a>'
            ).format(
                link.format(version=version if point.first == version else f"{point.first}-{version}"),
                f"{_versions(point)}: {', '.join(words)}",
                f"{left:.2f}",
                f"{right - left:.2f}",
                plane.tall,
                Markup("").join(marks),
            )
        )
    return svg(parts, label, tall=plane.tall)


def _evaluation_mark(plane: Plane, point: CurvePoint, number: int, *, of: int) -> Markup:
    """Interval and value of one evaluation: a disc for the first curve, a square for the second, and so on in turn."""
    x, y = f"{plane.x(point.last):.2f}", plane.y(point.rate)
    form = (
        Markup(
            '<svg x="{}%" y="{}" overflow="visible"><rect class="dot" x="-3.5" y="-3.5" width="7" height="7"/></svg>'
        )
        if number % 2
        else Markup('<circle class="dot" cx="{}%" cy="{}" r="4"/>')
    ).format(x, f"{y:.1f}")
    return Markup(
        '<g class="curve-{number}" transform="translate({aside} 0)">'
        '<line class="whisker" x1="{x}%" x2="{x}%" y1="{high}" y2="{low}"/>{form}</g>'
    ).format(
        number=number,
        aside=f"{(number - (of - 1) / 2) * APART:g}",
        x=x,
        high=f"{plane.y(point.high):.1f}",
        low=f"{plane.y(point.low):.1f}",
        form=form,
    )


class OverlaidPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A value of one of several curves, with what its interval or pooled neighbors reach."""

    x: int
    y: float
    low: float
    high: float
    words: str
    """The value in words."""


class OverlaidCurve(msgspec.Struct, frozen=True, kw_only=True):
    """One of several curves in a chart."""

    run: str
    name: str
    """In the legend."""
    points: list[OverlaidPoint]


def overlay_chart(curves: Sequence[OverlaidCurve], *, below: str, shares: bool, label: str) -> Markup:
    """Several runs' curves over each other, each with its band. `shares`: the values are rates, drawn from 0 to 100 %."""
    points = [point for curve in curves for point in curve.points]
    if not points:
        return Markup("")
    if shares:
        ticks = [0.0, 0.25, 0.5, 0.75, 1.0]
    else:
        ticks = round_values(min(p.low for p in points), max(p.high for p in points), most=TICKS_DOWN)
    left, right = min(p.x for p in points), max(p.x for p in points)
    plane = Plane(TALL, left, right, ticks[0], ticks[-1])
    labels = [f"{tick:.0%}" for tick in ticks] if shares else tick_labels(ticks)
    lines, marks = list[Markup](), list[Markup]()
    for number, curve in enumerate(curves):
        above = [plane.at(p.x, p.high) for p in curve.points]
        under = [plane.at(p.x, p.low) for p in reversed(curve.points)]
        line = " ".join(plane.at(p.x, p.y) for p in curve.points)
        lines.append(
            Markup(
                '<g class="curve-{}"><polygon class="band" points="{}"/><polyline class="line" points="{}"/></g>'
            ).format(number, " ".join(above + under), line)
        )
        shown = curve.points if len(curve.points) <= MOST_STRIPS else curve.points[-1:]
        marks += [
            Markup(
                '<g class="curve-{}"><circle class="dot" cx="{}%" cy="{}" r="3.5"><title>{}, {}</title></circle></g>'
            ).format(number, f"{plane.x(p.x):.2f}", f"{plane.y(p.y):.1f}", curve.run, p.words)
            for p in shown
        ]
    parts = [frame(plane, ticks, labels, below=below), drawn_out(plane, lines), *marks]
    return svg(parts, label, tall=plane.tall)


SPARK_WIDE, SPARK_TALL = 96, 24
"""Size of a sparkline in pixels."""


def sparkline(points: Sequence[CurvePoint]) -> Markup:
    """Success by policy version without axes, from 0 to 100 %, beginning to end; the numbers stand next to it."""
    if len(points) < 2:
        return Markup("")
    plane = Plane(SPARK_TALL - 4, points[0].first, points[-1].last, 0.0, 1.0)
    places = [(plane.x(_middle(p)) * (SPARK_WIDE - 4) / 100 + 2, plane.y(p.rate) + 2) for p in points]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    x, y = places[-1]
    return Markup(
        '<svg class="spark" width="{}" height="{}" aria-hidden="true"><polyline class="line" points="{}"/>'
        '<circle class="dot" cx="{}" cy="{}" r="2"/></svg>'
    ).format(SPARK_WIDE, SPARK_TALL, line, f"{x:.1f}", f"{y:.1f}")


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
