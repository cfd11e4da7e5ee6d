"""The table as pictures (SVG): claims with their intervals beside the papers' ratios, and learning curves."""

from collections.abc import Sequence
from html import escape
from math import log

from bench.recipes.claims import Finding
from bench.recipes.results import Result
from hindcast.core.rl.statistics import wilson

WIDTH, HEIGHT, MARGIN, COLUMNS = 220, 130, 34, 3
COLOURS = ("#1b6ca8", "#b5541c", "#3c7d3c", "#7a4a9c", "#8a6d1d")
LABELS, PLOT, LINE = 330, 380, 26
"""Pixels of a claim's name, of the axis, and of a line."""
TICKS = (0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def forest(findings: Sequence[Finding]) -> str:
    """Claims as points with intervals on a logarithmic axis of ratios; a diamond marks the paper's ratio."""
    shown = [one for one in findings if one.pairs]
    lowest, highest = log(TICKS[0]), log(TICKS[-1])

    def place(ratio: float) -> float:
        inside = min(max(log(max(ratio, 1e-9)), lowest), highest)
        return LABELS + PLOT * (inside - lowest) / (highest - lowest)

    height = LINE * (len(shown) + 2)
    parts = []
    for tick in TICKS:
        x, strong = place(tick), tick == 1.0
        parts.append(
            f'<path d="M{x:.1f} {LINE}V{height - LINE}" stroke="{"#555" if strong else "#ddd"}"/>'
            f'<text x="{x:.1f}" y="{height - 8}" text-anchor="middle">{tick:g}</text>'
        )
    for number, one in enumerate(shown, start=1):
        y, ratio = LINE * number + LINE / 2, one.ratio
        colour = COLOURS[0] if one.verdict == "holds" else COLOURS[1]
        parts.append(f'<text x="{LABELS - 8}" y="{y + 4}" text-anchor="end">{escape(one.claim.name)}</text>')
        parts.append(
            f'<path d="M{place(ratio.low):.1f} {y}H{place(ratio.high):.1f}" stroke="{colour}" stroke-width="2"/>'
            f'<circle cx="{place(ratio.rate):.1f}" cy="{y}" r="4" fill="{colour}"/>'
        )
        if one.claim.paper is not None:
            x = place(one.claim.paper)
            parts.append(f'<path d="M{x:.1f} {y - 6}l5 6l-5 6l-5 -6z" fill="none" stroke="#333"/>')
        spread = f" [{ratio.low:.2f}, {ratio.high:.2f}]" if len(one.pairs) > 1 else ""
        told = f"{ratio.rate:.2f}{spread}, {len(one.pairs)} seeds"
        parts.append(f'<text x="{LABELS + PLOT + 10}" y="{y + 4}">{told}</text>')
    heading = f'<text x="{LABELS}" y="16">ratio of success, 95 % over seeds; diamond: the paper</text>'
    return _svg(LABELS + PLOT + 180, height, heading + "".join(parts), size=12)


def curves(rows: Sequence[tuple[str, Sequence[Result]]], *, temperature: float) -> str:
    """Success against minutes: a small panel per trained row, a line per seed with its band."""
    shown = [(name, [one for one in results if one.updates]) for name, results in rows]
    shown = [(name, results) for name, results in shown if results]
    longest = max((one.minutes for _, results in shown for one in results), default=1.0) or 1.0
    lines = -(-len(shown) // COLUMNS)
    panels = "".join(
        f'<g transform="translate({index % COLUMNS * WIDTH},{index // COLUMNS * HEIGHT})">'
        f"{_panel(name, results, longest, temperature)}</g>"
        for index, (name, results) in enumerate(shown)
    )
    return _svg(WIDTH * min(COLUMNS, max(1, len(shown))), HEIGHT * max(1, lines), panels, size=9)


def _svg(width: float, height: float, content: str, *, size: int) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="{size}"><rect width="100%" height="100%" fill="white"/>{content}</svg>\n'
    )


def _panel(name: str, results: Sequence[Result], longest: float, temperature: float) -> str:
    left, bottom = MARGIN, HEIGHT - 24
    width, height = WIDTH - MARGIN - 10, bottom - 20

    def place(minutes: float, share: float) -> str:
        return f"{left + width * minutes / longest:.1f},{bottom - height * share:.1f}"

    parts = [f'<text x="{left}" y="12" font-weight="bold">{escape(name)}</text>']
    for share in (0.0, 0.5, 1.0):
        y = bottom - height * share
        parts.append(f'<path d="M{left} {y:.1f}h{width}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 4}" y="{y + 3:.1f}" text-anchor="end">{share:.0%}</text>')
    parts.append(f'<text x="{left + width}" y="{bottom + 14}" text-anchor="end">{longest:.1f} min</text>')
    for result, colour in zip(results, COLOURS * len(results), strict=False):
        curve = [(one.minutes, wilson(one.successes, one.episodes)) for one in result.curve(temperature)]
        above = [place(minutes, band.high) for minutes, band in curve]
        below = [place(minutes, band.low) for minutes, band in reversed(curve)]
        middle = " ".join(place(minutes, band.rate) for minutes, band in curve)
        parts.append(f'<polygon points="{" ".join(above + below)}" fill="{colour}" opacity=".15"/>')
        parts.append(f'<polyline points="{middle}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts += [
            f'<circle cx="{at.split(",")[0]}" cy="{at.split(",")[1]}" r="2" fill="{colour}"/>'
            for at in middle.split()
        ]
    return "".join(parts)
