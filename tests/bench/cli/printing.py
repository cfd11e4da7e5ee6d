"""How a benchmark's comparisons are printed."""

import platform
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
import psutil

from bench.comparison import Comparison
from bench.replay import Figure
from hindcast.app.cli.output import Report, Table


def comparisons_report(comparisons: Sequence[Comparison]) -> Report:
    """Ours, the peer's, the ratio with its interval, and whether the goal was met."""
    rows = [
        (
            one.figure,
            f"{one.ours:,.4g}",
            f"{one.peer:,.4g}",
            one.unit,
            one.peer_name,
            f"{one.ratio:.2f} [{one.low:.2f}, {one.high:.2f}]",
            _verdict(one),
        )
        for one in comparisons
    ]
    heads = ("figure", "ours", "peer", "unit", "compared with", "ratio, 95 %", "goal")
    pairs = max((one.repeats for one in comparisons), default=0)
    return Report(
        {"machine": machine(), "comparisons": comparisons},
        [
            Table(heads, rows, empty="nothing was measured"),
            *(f"{one.figure}: {one.detail}" for one in comparisons if one.detail),
            f"{machine()}, n = {pairs} pairs each",
        ],
    )


def _verdict(one: Comparison) -> str:
    if one.goal is None:
        return "-"
    return f"{'met' if one.ratio >= one.goal else 'MISSED'} (>= {one.goal:g})"


def figures_report(figures: Sequence[Figure], *, events: int, note: str) -> Report:
    """Figures of a run of so many events beside their goals. `note`: what their intervals are."""
    found = [{**msgspec.to_builtins(one), "met": one.met} for one in figures]
    heads = ("figure", "measured", "from", "to", "unit", "goal")
    return Report(
        {"machine": machine(), "events": events, "figures": found},
        [
            Table(heads, [_row(one) for one in figures], empty="nothing was measured"),
            *(f"{one.name}: {one.detail}" for one in figures if one.detail),
            f"{machine()}, {events:,} events. {note}",
        ],
    )


def _row(one: Figure) -> tuple[str, ...]:
    goal = "-"
    if one.goal is not None:
        goal = f"{'met' if one.met else 'MISSED'} ({'>=' if one.more_is_better else '<='} {one.goal:,.4g})"
    low, high = ("" if end is None else f"{end:,.4g}" for end in (one.low, one.high))
    return one.name, f"{one.value:,.4g}", low, high, one.unit, goal


def machine() -> str:
    """Where and when, in a line."""
    when = datetime.now(tz=UTC).strftime("%Y-%m-%d")
    return (
        f"{psutil.cpu_count()} cores {platform.machine()}, {psutil.virtual_memory().total / 2**30:.0f} GiB, "
        f"Python {platform.python_version()}, load {psutil.getloadavg()[0]:.1f}, {when}"
    )
