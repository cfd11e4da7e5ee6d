"""Charts as SVG, drawn by the server: exact, readable without scripts, with points that are links. Pure.

Each carries its values for the page's script, which draws it anew in its place.

Nothing is sampled. If there are more values than pixels, neighbors are pooled: successes and episodes are added up, and a
metric shows its lowest, highest and last value. A gap in the data is a gap in the line.

A chart has a fixed height and the width of its container: horizontal places are in percent, vertical ones in pixels. So
text, dots and lines keep their size on a phone; only lines of many points (`stretched`) are scaled. The margins for labels
are the chart's padding in page.css.
"""

from collections.abc import Mapping, Sequence
from math import ceil, floor, log10
from typing import Any

import msgspec
from markupsafe import Markup

from hindcast.app.evaluation.evaluation_lines import temperature_in_words
from hindcast.app.page.views.axes import Axis
from hindcast.core.rl.statistics import standardized, wilson
from hindcast.storage.readmodel.evaluation_queries import EvaluationRate, EvaluationRow
from hindcast.storage.readmodel.metrics import MetricColumn
from hindcast.storage.readmodel.outcome_counts import Families, merge_families

NATURAL = Axis()
"""Draws policy versions and updates over their own numbers."""
TALL, SMALL = 236, 122
"""Height in pixels of a success curve's and of a metric's plane, without the labels below."""
MOST_POINTS = 120
"""Most points of a success curve: six pixels each."""
MOST_COLUMNS = 300
"""Most columns of a metric: two pixels each."""
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


Span = tuple[int, int] | None
"""First and last policy version or update of a part of a curve; None: all of it."""


def in_span(span: Span, first: int, last: int) -> bool:
    """Whether these versions or updates are in the part, or some of them."""
    return span is None or (first <= span[1] and last >= span[0])


def pool_versions(
    played: Mapping[int, Families], *, most: int = MOST_POINTS, span: Span = None
) -> list[CurvePoint]:
    """Points of a part of a curve from the families of each version, versions in order; counts of neighbours are added up.

    >>> played = {0: {"a": (1, 2)}, 1: {"a": (2, 2)}, 2: {"a": (0, 4)}}
    >>> [(p.first, p.last, p.successes, p.judged) for p in pool_versions(played, most=2)]
    [(0, 1, 3, 4), (2, 2, 0, 4)]
    """
    standard = merge_families(played.values())
    judged_versions = [
        version
        for version, families in played.items()
        if in_span(span, version, version) and any(judged for _, judged in families.values())
    ]
    size = max(1, ceil(len(judged_versions) / most))
    points = []
    for start in range(0, len(judged_versions), size):
        part = judged_versions[start : start + size]
        families = merge_families(played[version] for version in part)
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


def pool_metric(
    recorded: Sequence[MetricColumn], *, most: int = MOST_COLUMNS, span: Span = None
) -> list[MetricColumn]:
    """Columns of a part of a metric, no more than fit, in order: neighbours stand together, with their lowest, highest and last value.

    >>> each = [MetricColumn(first=n, last=n, updates=1, low=v, high=v, value=v) for n, v in [(1, 2.0), (2, 5.0), (3, 1.0)]]
    >>> pool_metric(each, most=1)
    [MetricColumn(first=1, last=3, updates=3, low=1.0, high=5.0, value=1.0)]
    """
    shown = [one for one in recorded if in_span(span, one.first, one.last)]
    size = max(1, ceil(len(shown) / most))
    if size == 1:
        return shown
    columns = []
    for start in range(0, len(shown), size):
        part = shown[start : start + size]
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


class EvaluationCurve(msgspec.Struct, frozen=True, kw_only=True):
    """Success on held-out tasks at one temperature."""

    name: str
    """`greedy`, or `temperature 1`."""
    points: list[CurvePoint]
    """One for each evaluation, or for several successive ones."""


def evaluation_curves(
    rows: Sequence[EvaluationRow], *, most: int = MOST_POINTS, span: Span = None
) -> list[EvaluationCurve]:
    """A part of the curve for each temperature of the evaluations; counts of neighbors are added up where there are more than `most`."""
    rates: dict[float, list[tuple[int, EvaluationRate]]] = {}
    for row in rows:
        for rate in row.rates:
            if rate.judged and in_span(span, row.version, row.version):
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


class ChartPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A value of a curve."""

    x: float
    y: float
    low: float
    """Lower end of its interval, or the lowest of the values pooled in it."""
    high: float
    n: int
    """Judged episodes, or updates."""
    first: int
    """Policy version or update."""
    last: int
    joined: bool = True
    """Whether a line leads to it from the point before; if not, there is a gap."""
    note: str = ""
    """Further words about it."""


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """One curve of a chart."""

    name: str
    """In the legend."""
    points: list[ChartPoint]
    run: str = ""
    color: int = 0
    """Number of its color and pattern: the same for a run in every chart."""
    link: str = ""
    """Address of a point's episodes, with `{version}` in it; empty: none. Of pooled versions that is the first and the last,
    `3-7`."""


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """Curves over one axis."""

    label: str
    """What the values are."""
    below: str
    """What the horizontal axis counts."""
    unit: str
    """What has a value: `policy` or `update`."""
    shares: bool
    """Whether the values are rates with a 95 % interval, drawn from 0 to 100 %."""
    curves: list[Curve]

    def words(self, point: ChartPoint) -> str:
        """A value in words."""
        units = {"policy": "policies", "update": "updates"}[self.unit]
        one = point.first == point.last
        whose = f"{self.unit} {point.last}" if one else f"{units} {point.first} to {point.last}"
        if self.shares:
            value = f"{point.y:.0%} [{point.low:.0%}, {point.high:.0%}] n={point.n}"
        elif one:
            value = f"{point.y:.4g}"
        else:
            value = f"{point.y:.4g} at last, from {point.low:.4g} to {point.high:.4g}"
        return f"{whose}: {value}{point.note}"


MOST_COLORS = 12
"""Number of colors of curves in page.css, each with a pattern of its own."""


def run_colors(names: Sequence[str], chosen: Sequence[str]) -> dict[str, int]:
    """The color of each chosen run. It depends on the run's place among all alone, so that a run has it on every page.

    >>> run_colors(["a", "b", "c"], ["c", "a"])
    {'a': 0, 'c': 2}
    """
    return {name: place % MOST_COLORS for place, name in enumerate(names) if name in chosen}


def success_points(points: Sequence[CurvePoint], axis: Axis, *, gaps: bool) -> list[ChartPoint]:
    """Points of a curve of success. `gaps`: a version without verdicts interrupts the line."""
    found: list[ChartPoint] = []
    before: CurvePoint | None = None
    for point in points:
        x = axis.place("policy", point.last)
        if x is not None:
            found.append(
                ChartPoint(
                    x=x,
                    y=point.rate,
                    low=point.low,
                    high=point.high,
                    n=point.judged,
                    first=point.first,
                    last=point.last,
                    joined=not gaps or before is None or point.first == before.last + 1,
                    note=f", as played {point.successes} of {point.judged}" if gaps else "",
                )
            )
        before = point
    return found


def metric_points(columns: Sequence[MetricColumn], axis: Axis) -> list[ChartPoint]:
    """Points of a metric; an update without it interrupts the line."""
    found: list[ChartPoint] = []
    before: MetricColumn | None = None
    for column in columns:
        x = axis.place("update", column.last)
        if x is not None:
            found.append(
                ChartPoint(
                    x=x,
                    y=column.value,
                    low=column.low,
                    high=column.high,
                    n=column.updates,
                    first=column.first,
                    last=column.last,
                    joined=before is None or column.first == before.last + 1,
                )
            )
        before = column
    return found


def success_chart(
    points: Sequence[CurvePoint], *, link: str, label: str, axis: Axis = NATURAL, color: int = 0
) -> Markup:
    """Success by policy version with its band; every point leads to its episodes, see `Curve.link`."""
    curve = Curve(name="success", points=success_points(points, axis, gaps=True), link=link, color=color)
    return curve_chart(
        Chart(label=label, below=axis.label("policy"), unit="policy", shares=True, curves=[curve])
    )


def evaluation_chart(
    curves: Sequence[EvaluationCurve], *, link: str, label: str, axis: Axis = NATURAL, color: int = 0
) -> Markup:
    """Success on held-out tasks, a curve with its band for each temperature; a point leads to its episodes.

    `color`: of the first temperature; the others have the next ones.
    """
    drawn = [
        Curve(
            name=one.name,
            points=success_points(one.points, axis, gaps=False),
            color=(color + number) % MOST_COLORS,
            link=link,
        )
        for number, one in enumerate(curves)
    ]
    return curve_chart(
        Chart(label=label, below=axis.label("policy"), unit="policy", shares=True, curves=drawn)
    )


def metric_chart(
    columns: Sequence[MetricColumn], *, label: str, axis: Axis = NATURAL, color: int = 0
) -> Markup:
    """A metric of the updates: its last values as a line, with a band over what pooled neighbors reach."""
    curve = Curve(name=label, points=metric_points(columns, axis), color=color)
    return curve_chart(
        Chart(label=label, below=axis.label("update"), unit="update", shares=False, curves=[curve]),
        tall=SMALL,
    )


def curve_chart(chart: Chart, *, tall: int = TALL) -> Markup:
    """The picture of a chart, and its values for the script that draws it anew with a crosshair and zoom (charts.js)."""
    curves = [curve for curve in chart.curves if curve.points]
    points = [point for curve in curves for point in curve.points]
    if not points:
        return Markup("")
    if chart.shares:
        low, high = 0.0, 1.0
        ticks = [0.0, 0.25, 0.5, 0.75, 1.0]
        labels = [f"{tick:.0%}" for tick in ticks]
    else:
        low, high = min(p.low for p in points), max(p.high for p in points)
        ticks = round_values(low, high, most=TICKS_DOWN)
        labels = tick_labels(ticks)
    plane = Plane(
        tall,
        min(p.x for p in points),
        max(p.x for p in points),
        min(low, ticks[0]),
        max(high, ticks[-1]),
    )
    lines, marks = list[Markup](), list[Markup]()
    for curve in curves:
        color = Markup('<g class="curve-{}">{}</g>')
        for stretch in _unbroken(curve.points):
            if len(stretch) > 1:
                lines.append(color.format(curve.color, _line(plane, stretch)))
            if not chart.shares and (len(stretch) == 1 or stretch[-1] is curve.points[-1]):
                marks.append(color.format(curve.color, _mark(plane, chart, curve, stretch[-1])))
        if chart.shares:
            marks += [color.format(curve.color, _mark(plane, chart, curve, p)) for p in curve.points]
    parts = [frame(plane, ticks, labels, below=chart.below), drawn_out(plane, lines), *marks]
    return Markup('<div class="curves{}" data-chart="{}">{}</div>').format(
        "" if tall == TALL else " small",
        msgspec.json.encode(_in_columns(chart)).decode(),
        svg(parts, chart.label, tall=tall),
    )


def _line(plane: Plane, points: Sequence[ChartPoint]) -> Markup:
    """A line without a gap, over its band."""
    line = Markup('<polyline class="line" points="{}"/>').format(" ".join(plane.at(p.x, p.y) for p in points))
    if all(p.low == p.high for p in points):
        return line
    above = [plane.at(p.x, p.high) for p in points]
    under = [plane.at(p.x, p.low) for p in reversed(points)]
    return Markup('<polygon class="band" points="{}"/>').format(" ".join(above + under)) + line


def _mark(plane: Plane, chart: Chart, curve: Curve, point: ChartPoint) -> Markup:
    """A point with its interval, which leads to its episodes if the curve has a link: a disc, or a square in every other
    color."""
    x, y = f"{plane.x(point.x):.2f}", plane.y(point.y)
    form = (
        Markup(
            '<svg x="{}%" y="{}" overflow="visible"><rect class="dot" x="-3.5" y="-3.5" width="7" height="7"/></svg>'
        )
        if curve.color % 2
        else Markup('<circle class="dot" cx="{}%" cy="{}" r="3.5"/>')
    ).format(x, f"{y:.1f}")
    drawn = Markup(
        '<title>{title}</title><line class="whisker" x1="{x}%" x2="{x}%" y1="{high}" y2="{low}"/>{form}'
    ).format(
        title=f"{curve.run}, {chart.words(point)}" if curve.run else chart.words(point),
        x=x,
        high=f"{plane.y(point.high):.1f}",
        low=f"{plane.y(point.low):.1f}",
        form=form,
    )
    if not curve.link:
        return Markup("<g>{}</g>").format(drawn)
    versions = str(point.last) if point.first == point.last else f"{point.first}-{point.last}"
    return Markup('<a href="{}">{}</a>').format(curve.link.format(version=versions), drawn)


COLUMNS = ("x", "y", "low", "high", "n", "first", "last", "note")


def _in_columns(chart: Chart) -> dict[str, Any]:
    """The values for the script, a list for each field of the points; a gap is a place without a value."""
    found = msgspec.structs.asdict(chart)
    found["curves"] = []
    for curve in chart.curves:
        columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
        before: ChartPoint | None = None
        for point in curve.points:
            if before is not None and not point.joined:
                for name in COLUMNS:
                    columns[name].append((before.x + point.x) / 2 if name == "x" else None)
            for name in COLUMNS:
                columns[name].append(getattr(point, name))
            before = point
        named = {"name": curve.name, "run": curve.run, "color": curve.color, "link": curve.link}
        found["curves"].append(named | columns)
    return found


def _unbroken(points: Sequence[ChartPoint]) -> list[list[ChartPoint]]:
    """Parts of a curve without a gap."""
    stretches: list[list[ChartPoint]] = []
    for point in points:
        if stretches and point.joined:
            stretches[-1].append(point)
        else:
            stretches.append([point])
    return stretches


SPARK_WIDE, SPARK_TALL = 96, 24
"""Size of a sparkline in pixels."""


def sparkline(points: Sequence[CurvePoint]) -> Markup:
    """Success by policy version without axes, from 0 to 100 %, beginning to end; the numbers stand next to it."""
    if len(points) < 2:
        return Markup("")
    plane = Plane(SPARK_TALL - 4, points[0].first, points[-1].last, 0.0, 1.0)
    places = [(plane.x(p.last) * (SPARK_WIDE - 4) / 100 + 2, plane.y(p.rate) + 2) for p in points]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    x, y = places[-1]
    return Markup(
        '<svg class="spark" width="{}" height="{}" aria-hidden="true"><polyline class="line" points="{}"/>'
        '<circle class="dot" cx="{}" cy="{}" r="2"/></svg>'
    ).format(SPARK_WIDE, SPARK_TALL, line, f"{x:.1f}", f"{y:.1f}")
