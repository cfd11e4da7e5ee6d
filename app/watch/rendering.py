"""Renders a view as one line, or as a terminal screen of 80 columns, for one view and for the live view."""

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hindcast.app.evaluation.evaluation_lines import TemperatureSuccess
from hindcast.app.watch.follower import Counts
from hindcast.app.watch.view import LearnerView, RateView, RunView
from hindcast.core.text.counts import count_of
from hindcast.core.text.printable import one_line

LEVELS = "▁▂▃▄▅▆▇█"
GAP = " "
EPISODES = 4
"""Episodes shown for one actor."""
CURVE_WIDTH = 40


def sparkline(counts: Iterable[tuple[int, float, int]], *, width: int) -> str:
    """Success over versions from (version, successes, judged), at most `width` characters, from 0 % (▁) to 100 % (█).

    Where there are more versions than characters, those that share one are added up: nothing is left out. Versions
    without any verdict are a gap.

    >>> sparkline([(0, 0, 4), (1, 1, 2), (3, 4, 4)], width=10)
    '▁▅ █'
    >>> sparkline([(0, 0, 1), (1, 1, 1), (2, 1, 1), (3, 1, 1)], width=2)
    '▅█'
    """
    told = [one for one in counts if one[2]]
    if not told or width < 1:
        return ""
    first, last = min(one[0] for one in told), max(one[0] for one in told)
    size = -(-(last - first + 1) // width)
    cells: list[tuple[float, int]] = [(0, 0)] * ((last - first) // size + 1)
    for version, successes, judged in told:
        place = (version - first) // size
        cells[place] = cells[place][0] + successes, cells[place][1] + judged
    return "".join(_level(successes, judged) if judged else GAP for successes, judged in cells)


def _level(successes: float, judged: int) -> str:
    """The level nearest to the rate, halves upwards."""
    return LEVELS[min(len(LEVELS) - 1, int((2 * successes * (len(LEVELS) - 1) + judged) // (2 * judged)))]


def seconds(value: float | None) -> str:
    """A duration in a readable unit."""
    if value is None:
        return "-"
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.1f} s"


def rate_in_words(rate: RateView) -> str:
    """A rate with its interval and n."""
    return f"{rate.rate:.0%} [{rate.low:.0%}, {rate.high:.0%}] n={rate.n}"


def as_line(view: RunView) -> str:
    """The main figures on one line, for logs and pipes."""
    learner = view.learner
    success = f"{view.success[0].of} {rate_in_words(view.success[0])}" if view.success else "no verdict"
    return " · ".join(
        (
            f"position {view.position}",
            f"success {success}",
            *([f"held out {_held_out(view.evaluated)}"] if view.evaluated else []),
            f"policy {_number(learner.policy_version)}",
            f"{count_of(learner.updates, 'update')}, {_loss(learner)}",
            *(f"{count} of the {model}" for model, count in learner.beside.items()),
            f"{count_of(view.running, 'episode')} running, {view.episodes_per_minute:.1f}/min",
            view.bottleneck,
        )
    )


def as_screen(view: RunView, curve: Sequence[Counts] = ()) -> RenderableType:
    """Everything on one screen. `curve`: success by version over the whole run, if the read model has it."""
    parts: list[RenderableType] = [
        Text(
            f"run {view.run} · position {view.position} · policy {_number(view.learner.policy_version)}",
            "bold",
        ),
        Text(view.bottleneck, "bold"),
        Text(""),
        _success(view, curve),
        _learner(view),
        Text(""),
        _actors(view),
    ]
    if view.consumers:
        parts += [Text(""), _consumers(view)]
    return Group(*parts, *(Text(f"! {one_line(notice)}") for notice in view.notices))


def _columns(*heads: str) -> Table:
    """A table without lines, for narrow terminals; one row is one line."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="underline")
    for head in heads:
        table.add_column(head, no_wrap=True, overflow="ellipsis")
    return table


def _named(rows: Sequence[tuple[str, str]]) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for name, told in rows:
        table.add_row(name, Text(told))
    return table


def _success(view: RunView, curve: Sequence[Counts]) -> RenderableType:
    rows = []
    if curve:
        drawn = sparkline(curve, width=CURVE_WIDTH)
        rows.append(("success", f"{drawn}  policies {curve[0][0]} to {curve[-1][0]}, ▁ 0 % to █ 100 %"))
    rows += [(rate.of, rate_in_words(rate)) for rate in view.success]
    if view.evaluated:
        rows.append(("held out", _held_out(view.evaluated)))
    return _named(rows or [("success", "no verdict on an online episode yet")])


def _held_out(evaluated: Sequence[TemperatureSuccess]) -> str:
    """Success on held-out tasks, with the points since the first evaluation; short enough for a line of 80 columns."""
    parts = []
    for one in evaluated:
        band, at = one.success, f"at {one.temperature:g}" if one.temperature else "greedy"
        change = "" if one.change is None else f" {100 * one.change:+.0f}"
        parts.append(f"{at} {band.rate:.0%} [{band.low:.0%}, {band.high:.0%}]{change}")
    return f"policy {evaluated[0].version}: {'; '.join(parts)}"


def _learner(view: RunView) -> RenderableType:
    learner = view.learner
    said = (
        f"{count_of(learner.updates, 'update')}, {learner.updates_per_minute:.1f}/min, the last {seconds(learner.quiet_s)} ago; "
        f"{_loss(learner)}"
    )
    busy = f"computes {learner.busy:.0%} of the time; {view.agreed:.0%} of the groups agreed"
    auxiliary = "".join(
        f"; {count_of(count, 'update')} of the {model}" for model, count in learner.beside.items()
    )
    episodes = (
        f"{view.requested} requested, {view.running} running, {view.unjudged} unjudged; {view.episodes_per_minute:.1f}/min, "
        f"{view.steps_per_second:.1f} steps/s over {view.window_s:.0f} s"
    )
    return _named((("learner", said), ("", busy + auxiliary), ("episodes", episodes)))


def _actors(view: RunView) -> RenderableType:
    if not view.actors:
        return Text("no actor has recorded anything since the last start")
    table = _columns("actor", "policy", "idle", "task", "step", "for")
    for actor in view.actors:
        head = (actor.name, _number(actor.policy_version), f"{actor.idle:.0%}")
        if not actor.episodes:
            table.add_row(*head, "no episode", "", seconds(actor.idle_s))
        for place, one in enumerate(actor.episodes[:EPISODES]):
            family = Text(one_line(one.family))  # a task's author wrote it: no markup
            table.add_row(*(("", "", "") if place else head), family, str(one.step), seconds(one.age_s))
        if len(actor.episodes) > EPISODES:
            table.add_row("", "", "", f"and {len(actor.episodes) - EPISODES} more", "", "")
    return table


def _consumers(view: RunView) -> RenderableType:
    table = _columns("consumer", "state", "lag", "events", "set aside", "detail")
    for row in view.consumers:
        told = (row.name, row.state, seconds(row.lag_s), _number(row.lag_events), str(row.dead_letters))
        table.add_row(*told, Text(one_line(row.detail)))
    return table


def _loss(learner: LearnerView) -> str:
    if learner.loss is None:
        return "no loss yet"
    stale = "-" if learner.staleness is None else f"{learner.staleness:.2f}"
    return f"loss {learner.loss:+.4f}, staleness {stale}"


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)
