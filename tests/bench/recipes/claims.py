"""What the measured rows say about a claim: ratio of two success rates over the seeds that both were run with."""

from collections.abc import Mapping, Sequence
from math import exp, log, sqrt

import msgspec

from bench.recipes.config import Claim
from bench.recipes.results import Result
from hindcast.core.rl.statistics import NORMAL_95, Interval


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """How a claim stands."""

    claim: Claim
    seeds: tuple[int, ...]
    """That both rows were run with; none: nothing is known."""
    ours: float = 0.0
    theirs: float = 0.0
    """Success over all episodes of those seeds."""
    ratio: Interval | None = None
    """Ours over theirs with its 95 % interval; None where nobody ever succeeded."""
    higher_in: int = 0
    """Seeds in which ours is higher."""

    @property
    def verdict(self) -> str:
        """In words."""
        if not self.seeds:
            return "not run"
        if self.ratio is None:
            return "no success"
        if self.ratio.low > 1:
            return (
                "holds"
                if self.claim.paper is None or self.ratio.rate >= self.claim.paper
                else "direction holds"
            )
        return "refuted" if self.ratio.high < 1 else "open"


def find(claim: Claim, results: Mapping[tuple[str, int], Result], seeds: Sequence[int]) -> Finding:
    """The finding over those seeds that both rows were run with. `results` by row and seed."""
    both = [seed for seed in seeds if (claim.ours, seed) in results and (claim.theirs, seed) in results]
    if not both:
        return Finding(claim=claim, seeds=())
    ours = [results[claim.ours, seed] for seed in both]
    theirs = [results[claim.theirs, seed] for seed in both]
    won, tried = sum(one.successes for one in ours), sum(one.episodes for one in ours)
    lost_won, lost_tried = sum(one.successes for one in theirs), sum(one.episodes for one in theirs)
    return Finding(
        claim=claim,
        seeds=tuple(both),
        ours=won / max(1, tried),
        theirs=lost_won / max(1, lost_tried),
        ratio=ratio_of_rates(won, tried, lost_won, lost_tried),
        higher_in=sum(one.rate > other.rate for one, other in zip(ours, theirs, strict=True)),
    )


def ratio_of_rates(won: int, tried: int, other_won: int, other_tried: int) -> Interval | None:
    """Ratio of two proportions with Katz's log interval (1978): episodes count as independent, seeds' spread left out.

    None where one of them is 0.
    """
    if not (won and other_won):
        return None
    ratio = (won / tried) / (other_won / other_tried)
    spread = NORMAL_95 * sqrt(1 / won - 1 / tried + 1 / other_won - 1 / other_tried)
    return Interval(rate=ratio, low=exp(log(ratio) - spread), high=exp(log(ratio) + spread))
