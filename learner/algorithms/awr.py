"""Advantage-weighted regression (arXiv 1910.00177): L = - mean over steps of exp(A/beta) log pi(a).

log pi is summed over the action's tokens. The weight is bounded as in the authors' code, so that one lucky step does not
drown the others.
"""

from __future__ import annotations

from math import exp, log
from typing import TYPE_CHECKING

from hindcast.core.rl.algorithm import Algorithm, AlgorithmTraits, options_as
from hindcast.core.rl.algorithm_options import Positive
from hindcast.core.settings.schema import LearnerSettings
from hindcast.learner.algorithms.base import SampleLoss, SampleTerms
from hindcast.learner.algorithms.steps import StepLoss, StepOptions, step_loss, step_share
from hindcast.learner.planners.phases import CHANGEABLE, PhasePlanner, check_phases, episodes_per_batch

if TYPE_CHECKING:
    import torch

LARGEST_WEIGHT = 20.0


class AwrOptions(StepOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of advantage-weighted regression."""

    beta: Positive = 0.3
    """Divides the advantage before the exponential."""


class Awr(StepLoss):
    """The loss of advantage-weighted regression."""

    def __init__(self, settings: LearnerSettings) -> None:
        super().__init__(settings)
        self._beta = options_as(settings, AwrOptions).beta

    def sample_loss(self, log_probs: torch.Tensor, terms: SampleTerms) -> SampleLoss:
        """See `Loss.sample_loss`."""
        weight = exp(min(log(LARGEST_WEIGHT), terms.advantage / self._beta))
        loss = -step_share(terms) * weight * log_probs.sum()
        return step_loss(loss, log_probs, terms, contributes=True)


ALGORITHM = Algorithm(
    traits=AlgorithmTraits(learns_in_phases=True),
    episodes_per_batch=episodes_per_batch,
    planner=PhasePlanner,
    loss=Awr,
    options=AwrOptions,
    changeable=CHANGEABLE | {"beta", "advantage_blend"},
    check=check_phases,
)
