"""Two ways of doing the same work, measured in turn on the same machine, and their ratio with an interval.

Machines are shared and noisy: a single figure says little, and a ratio of two figures taken at different times says
less. So ours and the peer take turns, each pair gives one ratio, and the interval comes from resampling the pairs.
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from math import exp, fsum, log
from statistics import median

import msgspec

RESAMPLES = 2000
LEVEL = 0.95

Measure = Callable[[], Awaitable[float]]
"""One measurement: a rate, more being better."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Our figure beside a peer's or a limit's."""

    figure: str
    """What was measured, in words."""
    unit: str
    """Such as `events/s`; more is better, unless the figure's words say otherwise."""
    ours: float
    """Median over the repeats."""
    peer: float
    peer_name: str
    """Who or what it is compared with."""
    ratio: float
    """Geometric mean of the pairs' ratios, ours / peer."""
    low: float
    """Lower end of the ratio's 95 % interval."""
    high: float
    goal: float | None
    """The ratio we are out for; None: merely reported."""
    repeats: int
    detail: str = ""
    """What else there is to know: sizes, contents, counts."""


async def compare(
    ours: Measure,
    peer: Measure,
    *,
    figure: str,
    unit: str,
    peer_name: str,
    goal: float | None,
    repeats: int,
    detail: str = "",
    said: Callable[[str], None] = lambda _line: None,
) -> Comparison:
    """Measure both in turn, who goes first alternating, and compare. `said` hears of each pair."""
    pairs: list[tuple[float, float]] = []
    for number in range(repeats):
        if number % 2:
            second = await peer()
            first = await ours()
        else:
            first = await ours()
            second = await peer()
        pairs.append((first, second))
        said(f"{figure}: ours {first:.4g}, {peer_name} {second:.4g} {unit} ({number + 1}/{repeats})")
    return summarise(pairs, figure=figure, unit=unit, peer_name=peer_name, goal=goal, detail=detail)


def summarise(
    pairs: Sequence[tuple[float, float]],
    *,
    figure: str,
    unit: str,
    peer_name: str,
    goal: float | None,
    detail: str = "",
) -> Comparison:
    """A comparison of pairs (ours, peer) that were measured one right after the other."""
    logs = [log(ours / peer) for ours, peer in pairs]
    low, high = interval_of_mean(logs)
    return Comparison(
        figure=figure,
        unit=unit,
        ours=median(ours for ours, _ in pairs),
        peer=median(peer for _, peer in pairs),
        peer_name=peer_name,
        ratio=exp(fsum(logs) / len(logs)),
        low=exp(low),
        high=exp(high),
        goal=goal,
        repeats=len(pairs),
        detail=detail,
    )


def interval_of_mean(values: Sequence[float]) -> tuple[float, float]:
    """Percentile bootstrap of the mean, the same for the same values."""
    drawn = random.Random(0)
    means = sorted(fsum(drawn.choices(values, k=len(values))) / len(values) for _ in range(RESAMPLES))
    tail = (1 - LEVEL) / 2
    return means[int(tail * RESAMPLES)], means[int((1 - tail) * RESAMPLES) - 1]
