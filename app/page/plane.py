"""The coordinate plane of charts: axes with labels, and the mapping from values to places. Pure.

A chart has a fixed height and the width of its container: horizontal places are in percent, vertical ones in pixels. So
text, dots and lines keep their size on a phone; only lines of many points (`stretched`) are scaled. The margins for labels
are the chart's padding in page.css.
"""

from collections.abc import Sequence
from math import ceil, floor, log10

from markupsafe import Markup

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
