"""Timeline of a run: a lane for each actor, for the learner and for each queue; weights lead to the first episode sampled with them."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import msgspec
from markupsafe import Markup
from sqlalchemy import ColumnElement, Select, or_, select

from hindcast.app.page.charts import svg
from hindcast.app.page.runs import PageQuery
from hindcast.app.page.views.overview import BUSY
from hindcast.app.page.views.queue_lanes import TALL, QueueLane, drawn, queue_lanes, queues_in_words
from hindcast.storage.readmodel.query_parts import (
    also_holding,
    first_verdicts,
    holding,
    newest_ns,
    training_judge,
)
from hindcast.storage.readmodel.tables import OPEN, episodes, steps, updates, weights

WINDOW_S = 120.0
LONGEST_S = 3600.0
MOST = 1000
"""Most bars of a kind; a larger window is cut at its beginning, and says so."""
SECOND_NS = 1_000_000_000
TOP = 22
ROW, GAP, BAR = 12, 12, 9
SHAPES = {"failure": (4, 5), "open": (3, 3)}
"""Offset and height in pixels of the smaller bars, so that color is not the only difference."""
THINNEST = 0.1
"""Least width of a bar in percent: about a pixel."""
STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600)
MOST_MARKS = 12


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """A bar: an episode or an update."""

    lane: str
    row: int
    """Row within the lane; bars of a row do not overlap."""
    begin_s: float
    """Seconds from the window's beginning; negative if it began before."""
    end_s: float
    name: str
    kind: str
    """`success`, `failure`, `undecided`, `open`, `abandoned`, `update`."""
    title: str


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """A policy version's publication, and the first episode that began with it by the end of the window."""

    version: int
    at_s: float
    first_lane: str | None
    first_s: float | None


class TimelinePage(msgspec.Struct, frozen=True, kw_only=True):
    """Values of the timeline page."""

    until_ns: int
    window_s: float
    rows: dict[str, int]
    """Lanes in order, with their number of rows."""
    bars: list[Bar]
    published: list[Published]
    cut: bool
    bottleneck: str
    """Who waited for whom in the window, in words; empty: there are no bars, or not all of them."""
    queues: list[QueueLane] = []
    """Queues in which an episode waited in the window."""
    waiting: str = ""
    """How much waited for whom, in words; empty: nothing did."""


def timeline(ask: PageQuery) -> TimelinePage:
    """The window before the newest event, or before `until` (nanoseconds since 1970)."""
    window_s = min(max(float(ask.number("seconds") or WINDOW_S), 1.0), LONGEST_S)
    until = ask.number("until") or _newest(ask)
    since = until - int(window_s * SECOND_NS)
    played, cut = _episodes(ask, since, until)
    learned = _updates(ask, since, until)
    lanes = sorted({lane for lane, *_ in played})
    bars, rows = [], {}
    for lane in lanes:
        placed, rows[lane] = _stack([one for one in played if one[0] == lane], since)
        bars += placed
    if learned:
        placed, rows["learner"] = _stack(learned, since)
        bars += placed
    queues = queue_lanes(ask.connection, position=ask.position, since_ns=since, until_ns=until)
    return TimelinePage(
        until_ns=until,
        window_s=window_s,
        rows=rows,
        bars=bars,
        published=_published(ask, since, until),
        cut=cut,
        bottleneck="" if cut else bottleneck_of(bars, window_s),
        queues=queues,
        waiting=queues_in_words(queues),
    )


def bottleneck_of(bars: Sequence[Bar], window_s: float) -> str:
    """Say who waited for whom in the window; empty without bars."""
    updates_s = _covered_s([bar for bar in bars if bar.kind == "update"], window_s)
    played = [bar for bar in bars if bar.kind != "update"]
    at_once = sum(min(window_s, bar.end_s) - max(0.0, bar.begin_s) for bar in played) / window_s
    idle = 1 - _covered_s(played, window_s) / window_s
    acting = f"{at_once:.1f} episodes are played at once on average"
    busy = updates_s / window_s
    if not bars:
        return ""
    if busy > BUSY:
        return f"The learner is the bottleneck of this stretch: it computes {busy:.0%} of the time; {acting}."
    if idle > BUSY:
        return f"Neither is the bottleneck of this stretch: nothing is played for {idle:.0%} of the time, and the learner computes {busy:.0%}."
    return (
        f"Actors are the bottleneck of this stretch: the learner waits {1 - busy:.0%} of the time; {acting}."
    )


def _covered_s(bars: Sequence[Bar], window_s: float) -> float:
    """Seconds of the window in which there is at least one of the bars."""
    covered = reached = 0.0
    for bar in sorted(bars, key=lambda one: one.begin_s):
        begin, end = max(reached, bar.begin_s), min(window_s, bar.end_s)
        covered += max(0.0, end - begin)
        reached = max(reached, end)
    return covered


Span = tuple[str, int, int, str, str, str]
"""Lane, begin, end (nanoseconds), name, kind, title."""


def _newest(ask: PageQuery) -> int:
    """Time of the newest event in the picture."""
    newest = [newest_ns(ask.connection, table, ask.position) for table in (steps, updates)]
    for column in (episodes.c.started_ns, episodes.c.terminal_ns):
        latest = select(column).where(also_holding(episodes, ask.position), column.is_not(None))
        newest.append(ask.connection.scalar(latest.order_by(column.desc()).limit(1)))
    return max((at for at in newest if at is not None), default=0)


def _episodes(ask: PageQuery, since: int, until: int) -> tuple[list[Span], bool]:
    """Episodes that began in the window, or before it and were running at its beginning; one index for each."""
    began, ended = episodes.c.started_ns, episodes.c.terminal_ns
    # between two bounds, and `+ 0`: by the index of another column SQLite would read every episode before the window
    found = [
        row
        for order, times in (
            (began, (began >= since, began < until, or_(ended.is_(None), ended > since))),
            (began + 0, (began + 0 < since, ended.between(since + 1, OPEN))),
            (began + 0, (began < since, ended.is_(None))),
        )
        for row in ask.connection.execute(_playing(ask, order, *times))
    ]
    found.sort(key=lambda row: (-row.started_ns, row.episode))
    spans: list[Span] = []
    for name, actor, site, family, state, started, terminal, version, outcome in found[:MOST]:
        kind = outcome or ("abandoned" if state in ("abandoned", "cancelled") else "open")
        title = f"{name}: {site}/{family}, {outcome or state}, policy {version}"
        spans.append((actor, started, terminal or until, name, kind, title))
    return spans, len(found) > MOST


def _playing(ask: PageQuery, order: ColumnElement[Any], *times: ColumnElement[bool]) -> Select[Any]:
    """Episodes that actors began with what their bars show, latest first; one more than are drawn."""
    said = first_verdicts(ask.position, training_judge(ask.connection, as_of=ask.position))
    names = ("episode", "actor", "environment", "family", "state", "started_ns", "terminal_ns", "version_low")
    return (
        select(*(episodes.c[name] for name in names), said.c.outcome)
        .outerjoin(said, said.c.episode == episodes.c.episode)
        .where(also_holding(episodes, ask.position), episodes.c.actor.is_not(None), *times)
        .order_by(order.desc())
        .limit(MOST + 1)
    )


def _updates(ask: PageQuery, since: int, until: int) -> list[Span]:
    found = ask.connection.execute(
        select(
            updates.c.model,
            updates.c.update_number,
            updates.c.outcome,
            updates.c.occurred_ns,
            updates.c.duration_ms,
            updates.c.cpu_ms,
        )
        .where(holding(updates, ask.position), updates.c.occurred_ns > since, updates.c.occurred_ns <= until)
        .order_by(updates.c.occurred_ns.desc())
        .limit(MOST)
    )
    return [
        (
            "learner",
            at - int((duration or 0.0) * 1_000_000),
            at,
            str(number) if model == "policy" else f"{model}/{number}",
            "update",
            f"update {number} of the {model}, {outcome}, {(duration or 0) / 1000:.1f} s, {(cpu or 0) / 1000:.1f} s of processor time",
        )
        for model, number, outcome, at, duration, cpu in found
    ]


def _stack(spans: list[Span], since: int) -> tuple[list[Bar], int]:
    """Put each bar into the first free row; returns the number of rows."""
    free: list[int] = []
    bars = []
    for lane, begin, end, name, kind, title in sorted(spans, key=lambda one: (one[1], one[3])):
        row = next((number for number, at in enumerate(free) if at <= begin), len(free))
        free[row : row + 1] = [end]
        bars.append(
            Bar(
                lane=lane,
                row=row,
                begin_s=(begin - since) / SECOND_NS,
                end_s=(end - since) / SECOND_NS,
                name=name,
                kind=kind,
                title=title,
            )
        )
    return bars, len(free)


def _published(ask: PageQuery, since: int, until: int) -> list[Published]:
    found = dict(
        ask.connection.execute(
            select(weights.c.version, weights.c.occurred_ns)
            .where(
                holding(weights, ask.position),
                weights.c.model == "policy",
                weights.c.occurred_ns > since,
                weights.c.occurred_ns <= until,
            )
            .order_by(weights.c.version)
        ).all()
    )
    first: dict[int, tuple[str | None, int]] = {}
    for version, lane, began in _began_with(ask, list(found), since, until):
        if began > found[version]:  # one that was under way may go on with it
            first.setdefault(version, (lane, began))
    arrows = []
    for version, at in found.items():
        lane, began_ns = first.get(version, (None, None))
        arrows.append(
            Published(
                version=version,
                at_s=(at - since) / SECOND_NS,
                first_lane=lane,
                first_s=None if began_ns is None else (began_ns - since) / SECOND_NS,
            )
        )
    return arrows


def _began_with(
    ask: PageQuery, versions: list[int], since: int, until: int
) -> list[tuple[int, str | None, int]]:
    """Version, actor and beginning of the window's episodes of the versions, in order, in one query."""
    if not versions:
        return []
    statement = (
        select(episodes.c.version_low, episodes.c.actor, episodes.c.started_ns)
        .where(
            also_holding(episodes, ask.position),
            (episodes.c.version_low + 0).between(min(versions), max(versions)),
            episodes.c.started_ns > since,
            episodes.c.started_ns <= until,
        )
        .order_by(episodes.c.started_ns)
    )
    known = set(versions)
    return [(v, lane, at) for v, lane, at in ask.connection.execute(statement) if v in known]


def duration(seconds: float) -> str:
    """A round time in its largest unit: `30 s`, `2 min`, `1 h`."""
    for unit, size_s in (("h", 3600), ("min", 60)):
        if seconds >= size_s and seconds % size_s == 0:
            return f"{seconds / size_s:.0f} {unit}"
    return f"{seconds:.0f} s"


def _tops(page: TimelinePage) -> tuple[dict[str, float], float]:
    """Top of each lane, those of queues last, and the height of the picture."""
    tops: dict[str, float] = {}
    height = float(TOP)
    for lane, rows in page.rows.items():
        tops[lane] = height
        height += rows * ROW + GAP
    for queue in page.queues:
        tops[queue.name] = height
        height += TALL + GAP
    return tops, height


def lane_names(page: TimelinePage) -> Markup:
    """The names of the lanes once more, for a screen on which the picture scrolls aside and takes its own names along."""
    tops, height = _tops(page)
    named = Markup("").join(
        Markup('<text x="2" y="{}">{}</text>').format(f"{top + BAR:.0f}", lane) for lane, top in tops.items()
    )
    return Markup('<svg class="lane-names" width="84" height="{}" aria-hidden="true">{}</svg>').format(
        round(height + 6), named
    )


def lanes(page: TimelinePage, *, base: str, as_of: int | None) -> Markup:
    """The picture; `base` is the run's address, `as_of` is added to every link."""
    tops, height = _tops(page)
    parts = [_marks(page, height)]
    parts += [drawn(lane, top=tops[lane.name], window_s=page.window_s) for lane in page.queues]
    for lane in page.rows:
        top = tops[lane]
        parts.append(Markup('<text class="lane" x="-80" y="{}">{}</text>').format(f"{top + BAR:.0f}", lane))
    for bar in page.bars:
        begin, end = _x(page, max(0.0, bar.begin_s)), _x(page, min(page.window_s, bar.end_s))
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
        _arrow(page, tops, height, one.version, one.at_s, one.first_lane, one.first_s)
        for one in page.published
    ]
    return svg(parts, "Timeline", tall=round(height + 6), kind="lanes")


def _link(base: str, bar: Bar, as_of: int | None) -> str:
    page = f"lineage/update/{bar.name}" if bar.kind == "update" else f"episodes/{bar.name}"
    return quote(f"{base}/{page}") + (f"?as_of={as_of}" if as_of is not None else "")


def _x(page: TimelinePage, at_s: float) -> float:
    """Percent from the left."""
    return 100 * at_s / page.window_s


def _marks(page: TimelinePage, height: float) -> Markup:
    """Vertical lines, seconds before the end."""
    step = next((one for one in STEPS_S if page.window_s / one <= MOST_MARKS), STEPS_S[-1])
    unit, size_s = ("min", 60) if step % 60 == 0 else ("s", 1)
    parts = []
    for number in range(int(page.window_s // step) + 1):
        x = _x(page, page.window_s - number * step)
        parts.append(
            Markup(
                '<line class="grid" x1="{x}%" x2="{x}%" y1="{top}" y2="{bottom}"/>'
                '<text class="tick" x="{x}%" y="12" text-anchor="middle">{s}</text>'
            ).format(
                x=f"{x:.2f}",
                top=TOP - 6,
                bottom=f"{height:.0f}",
                s=f"−{number * step // size_s} {unit}" if number else "end",
            )
        )
    return Markup("").join(parts)


def _arrow(
    page: TimelinePage,
    tops: dict[str, float],
    height: float,
    version: int,
    at_s: float,
    lane: str | None,
    first_s: float | None,
) -> Markup:
    """From a version's publication, at the foot, to the first episode that began with it."""
    x = _x(page, at_s)
    mark = Markup(
        '<line class="published" x1="{x}%" x2="{x}%" y1="{foot}" y2="{top}"><title>policy {version} published</title></line>'
    ).format(x=f"{x:.2f}", foot=f"{height:.0f}", top=f"{height - 6:.0f}", version=version)
    if lane not in tops or first_s is None or first_s > page.window_s:
        return mark
    return mark + Markup(
        '<line class="leads" x1="{}%" y1="{}" x2="{}%" y2="{}"><title>policy {}</title></line>'
    ).format(f"{x:.2f}", f"{height - 6:.0f}", f"{_x(page, first_s):.2f}", f"{tops[lane]:.0f}", version)
