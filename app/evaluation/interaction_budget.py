"""Test-time scaling by interaction budget (WebAgent-R1, arXiv 2505.16421, section 4.3): success against the steps allowed.

One set of episodes is played with the largest budget. The policy cannot read how many steps are left, so up to step b an
episode proceeds as with a budget of b; it counts as a success there only if it had ended by then and was judged one. An
episode that is cut short may leave the site in a state that the judge accepts; this is not counted, so every point but the
last is a lower bound.
"""

from collections.abc import Sequence

import msgspec

from hindcast.app.evaluation.evaluation import EvaluatedEpisode
from hindcast.core.rl.statistics import wilson
from hindcast.events.catalogue import EpisodeRequested


class BudgetPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Success within a number of steps, with its 95 % Wilson interval."""

    budget: int
    """Steps."""
    rate: float
    low: float
    high: float
    episodes: int


def with_budget(requests: Sequence[EpisodeRequested], steps: int) -> list[EpisodeRequested]:
    """The same requests with this step limit instead of their tasks'."""
    return [
        msgspec.structs.replace(request, task=msgspec.structs.replace(request.task, max_steps=steps))
        for request in requests
    ]


def success_within(episodes: Sequence[EvaluatedEpisode], budgets: Sequence[int]) -> list[BudgetPoint]:
    """One point for each budget, in rising order; `episodes` are those that a judge decided."""
    points = []
    for budget in sorted(set(budgets)):
        won = sum(one.outcome == "success" and len(one.steps) <= budget for one in episodes)
        band = wilson(won, len(episodes))
        points.append(
            BudgetPoint(
                budget=budget,
                rate=round(band.rate, 4),
                low=round(band.low, 4),
                high=round(band.high, 4),
                episodes=len(episodes),
            )
        )
    return points
