"""What the measured rows say about a claim: success of two rows, paired by seed and task, at one temperature."""

from collections.abc import Mapping, Sequence
from math import nan

import msgspec

from bench.recipes.config import Claim
from bench.recipes.paired import SeedPair, mean_of, points, ratio, seed_pair
from bench.recipes.results import LOST, UNDECIDED, WON, Measurement, Result
from hindcast.core.rl.statistics import Interval

Results = Mapping[tuple[str, int], Result]
"""Results by row and seed."""
OUTCOMES = {WON: 1.0, LOST: 0.0, UNDECIDED: nan}


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """How a claim stands."""

    claim: Claim
    temperature: float
    pairs: dict[int, SeedPair]
    """By seed; none: nothing is known."""
    by_family: dict[str, list[SeedPair]]
    """The same, of one family's tasks alone."""

    @property
    def ratio(self) -> Interval:
        """Ours over theirs, with its 95 % interval over seeds."""
        return ratio([*self.pairs.values()])

    @property
    def points(self) -> Interval:
        """Ours minus theirs, likewise."""
        return points([*self.pairs.values()])

    @property
    def rates(self) -> tuple[Interval, Interval]:
        """Mean success of ours and theirs over the seeds, each with its own interval."""
        found = self.pairs.values()
        return mean_of([one.ours for one in found]), mean_of([one.theirs for one in found])

    @property
    def higher_in(self) -> int:
        """Seeds in which ours is higher."""
        return sum(one.ours > one.theirs for one in self.pairs.values())

    @property
    def verdict(self) -> str:
        """`holds`: the interval lies above 1 and reaches the paper's ratio, or, for a margin, above it."""
        if not self.pairs:
            return "not run"
        if self.claim.margin is not None:
            return "holds" if self.points.low > -self.claim.margin / 100 else "open"
        found = self.ratio
        if found.low > 1:
            reached = self.claim.paper is None or found.high >= self.claim.paper
            return "holds" if reached else "direction holds"
        return "refuted" if found.high < 1 else "open"


def find(claim: Claim, results: Results, seeds: Sequence[int], *, temperature: float) -> Finding:
    """The finding over those seeds that both rows were run with, from one checkpoint where they share one."""
    pairs: dict[int, SeedPair] = {}
    by_family: dict[str, list[SeedPair]] = {}
    for seed in seeds:
        ours, theirs = results.get((claim.ours, seed)), results.get((claim.theirs, seed))
        if ours is None or theirs is None:
            continue
        of_one_parent = ours.home == theirs.home
        if of_one_parent and ours.parent_log and theirs.descent and not ours.descent & theirs.descent:
            continue  # that parent was trained anew in between
        families = _outcomes(ours.last(temperature), theirs.last(temperature))
        for family, outcomes in families.items():
            if one := seed_pair(*outcomes):
                by_family.setdefault(family, []).append(one)
        all_ours, all_theirs = ([won for pair in families.values() for won in pair[side]] for side in (0, 1))
        if whole := seed_pair(all_ours, all_theirs):
            pairs[seed] = whole
    return Finding(claim=claim, temperature=temperature, pairs=pairs, by_family=by_family)


def _outcomes(ours: Measurement, theirs: Measurement) -> dict[str, tuple[list[float], list[float]]]:
    """Outcomes of ours and theirs task by task, by the families that both were measured on."""
    return {
        family: (
            [OUTCOMES[one] for one in ours.outcomes[family]],
            [OUTCOMES[one] for one in theirs.outcomes[family]],
        )
        for family in ours.outcomes
        if family in theirs.outcomes
    }
