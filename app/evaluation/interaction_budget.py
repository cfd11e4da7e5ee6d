"""Test-time scaling by interaction budget (WebAgent-R1, arXiv 2505.16421, section 4.3): success against the steps allowed.

One set of episodes, each played with the largest budget. Nothing that a policy reads says how many steps it has left, so up
to step b an episode goes as it would with a budget of b; it counts as a success there only if it had ended by then, and was
judged one. Being cut short might leave a site in a state that its judge accepts; that is not counted, so every point but the
last is a lower bound.
"""

from collections.abc import Sequence

import msgspec

from hindcast.app.evaluation.evaluation import EvaluatedEpisode
from hindcast.core.rl.statistics import wilson
from hindcast.events.catalogue import EpisodeRequested


class BudgetPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Success within so many steps, with its 95 % Wilson interval."""

    budget: int
    """Steps."""
    rate: float
    low: float
    high: float
    episodes: int


def with_budget(requests: Sequence[EpisodeRequested], steps: int) -> list[EpisodeRequested]:
    """The same requests with so many steps allowed, whatever their tasks say."""
    return [
        msgspec.structs.replace(request, task=msgspec.structs.replace(request.task, max_steps=steps))
        for request in requests
    ]


def success_within(episodes: Sequence[EvaluatedEpisode], budgets: Sequence[int]) -> list[BudgetPoint]:
    """One point per budget, in rising order; `episodes` are those that a judge could tell about."""
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
