"""The timeline as SVG: a lane for each process, bars that are links, and arrows from weights to their first episode. Pure."""

from urllib.parse import quote

from markupsafe import Markup

from hindcast.app.page.plane import svg
from hindcast.app.page.views.timeline import Bar, TimelinePage

TOP = 22
ROW, GAP, BAR = 12, 12, 9
SHAPES = {"failure": (4, 5), "open": (3, 3)}
"""Offset and height in pixels of the smaller bars, so that color is not the only difference."""
THINNEST = 0.1
"""Least width of a bar in percent: about a pixel."""
STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600)
MOST_MARKS = 12


def lanes(told: TimelinePage, *, base: str, as_of: int | None) -> Markup:
    """The picture; `base` is the run's address, `as_of` is added to every link."""
    tops: dict[str, float] = {}
    height = float(TOP)
    for lane, rows in told.rows.items():
        tops[lane] = height
        height += rows * ROW + GAP
    parts = [_marks(told, height)]
    for lane, top in tops.items():
        parts.append(Markup('<text class="lane" x="-80" y="{}">{}</text>').format(f"{top + BAR:.0f}", lane))
    for bar in told.bars:
        begin, end = _x(told, max(0.0, bar.begin_s)), _x(told, min(told.window_s, bar.end_s))
        below, tall = SHAPES.get(bar.kind, (0, BAR))
        parts.append(
            Markup(
                '<a href="{}"><rect class="bar {}" x="{}%" y="{}" width="{}%" height="{}"><title>{}</title></rect></a>'
            ).format(
                _link(base, bar, as_of),
                bar.kind,
                f"{begin:.2f}",
                f"{tops[bar.lane] + bar.row * ROW + below:.0f}",
                f"{max(THINNEST, end - begin):.2f}",
                tall,
                bar.title,
            )
        )
    parts += [
        _arrow(told, tops, height, one.version, one.at_s, one.first_lane, one.first_s)
        for one in told.published
    ]
    return svg(parts, "Timeline", tall=round(height + 6), kind="lanes")


def _link(base: str, bar: Bar, as_of: int | None) -> str:
    page = f"lineage/update/{bar.name}" if bar.kind == "update" else f"episodes/{bar.name}"
    return quote(f"{base}/{page}") + (f"?as_of={as_of}" if as_of is not None else "")


def _x(told: TimelinePage, at_s: float) -> float:
    """Percent from the left."""
    return 100 * at_s / told.window_s


def _marks(told: TimelinePage, height: float) -> Markup:
    """Vertical lines, seconds before the end."""
    step = next((one for one in STEPS_S if told.window_s / one <= MOST_MARKS), STEPS_S[-1])
    parts = []
    for number in range(int(told.window_s // step) + 1):
        x = _x(told, told.window_s - number * step)
        parts.append(
            Markup(
                '<line class="grid" x1="{x}%" x2="{x}%" y1="{top}" y2="{bottom}"/>'
                '<text class="tick" x="{x}%" y="12" text-anchor="middle">{s}</text>'
            ).format(
                x=f"{x:.2f}",
                top=TOP - 6,
                bottom=f"{height:.0f}",
                s=f"−{number * step} s" if number else "end",
            )
        )
    return Markup("").join(parts)


def _arrow(
    told: TimelinePage,
    tops: dict[str, float],
    height: float,
    version: int,
    at_s: float,
    lane: str | None,
    first_s: float | None,
) -> Markup:
    """From a version's publication, at the foot, to the first episode that began with it."""
    x = _x(told, at_s)
    mark = Markup(
        '<line class="published" x1="{x}%" x2="{x}%" y1="{foot}" y2="{top}"><title>policy {version} published</title></line>'
    ).format(x=f"{x:.2f}", foot=f"{height:.0f}", top=f"{height - 6:.0f}", version=version)
    if lane not in tops or first_s is None or first_s > told.window_s:
        return mark
    return mark + Markup(
        '<line class="leads" x1="{}%" y1="{}" x2="{}%" y2="{}"><title>policy {}</title></line>'
    ).format(f"{x:.2f}", f"{height - 6:.0f}", f"{_x(told, first_s):.2f}", f"{tops[lane]:.0f}", version)
