"""Learning curves as a picture: one small panel per row, success against minutes, a line per seed with its band. SVG."""

from collections.abc import Sequence
from html import escape

from bench.recipes.results import Result

WIDTH, HEIGHT, MARGIN, COLUMNS = 220, 130, 34, 3
COLOURS = ("#1b6ca8", "#b5541c", "#3c7d3c", "#7a4a9c", "#8a6d1d")


def curves(rows: Sequence[tuple[str, Sequence[Result]]]) -> str:
    """The picture of all rows that were trained; rows without a curve are left out."""
    shown = [(name, [one for one in results if one.curve]) for name, results in rows]
    shown = [(name, results) for name, results in shown if results]
    longest = max((one.curve[-1].minutes for _, results in shown for one in results), default=1.0) or 1.0
    lines = -(-len(shown) // COLUMNS)
    width, height = WIDTH * min(COLUMNS, max(1, len(shown))), HEIGHT * max(1, lines)
    panels = "".join(
        f'<g transform="translate({index % COLUMNS * WIDTH},{index // COLUMNS * HEIGHT})">'
        f"{_panel(name, results, longest)}</g>"
        for index, (name, results) in enumerate(shown)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="9"><rect width="100%" height="100%" fill="white"/>{panels}</svg>\n'
    )


def _panel(name: str, results: Sequence[Result], longest: float) -> str:
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
        above = [place(point.minutes, point.high) for point in result.curve]
        below = [place(point.minutes, point.low) for point in reversed(result.curve)]
        middle = " ".join(place(point.minutes, point.success) for point in result.curve)
        parts.append(f'<polygon points="{" ".join(above + below)}" fill="{colour}" opacity=".15"/>')
        parts.append(f'<polyline points="{middle}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts += [
            f'<circle cx="{at.split(",")[0]}" cy="{at.split(",")[1]}" r="2" fill="{colour}"/>'
            for at in middle.split()
        ]
    return "".join(parts)
