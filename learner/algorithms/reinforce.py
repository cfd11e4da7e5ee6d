"""REINFORCE on whole actions: L = - mean over steps of A log pi(a), log pi summed over the action's tokens.

With advantages from a critic it is WebRL without its KL constraint (the paper's ablation: the value as a baseline; beta = 0
would have no gradient at all).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hindcast.core.rl.algorithm import Algorithm, AlgorithmTraits
from hindcast.learner.algorithms.base import SampleLoss, SampleTerms
from hindcast.learner.algorithms.steps import StepLoss, StepOptions, step_loss, step_share
from hindcast.learner.planners.phases import CHANGEABLE, PhasePlanner, check_phases, episodes_per_batch

if TYPE_CHECKING:
    import torch


class Reinforce(StepLoss):
    """The loss of REINFORCE."""

    def sample_loss(self, log_probs: torch.Tensor, terms: SampleTerms) -> SampleLoss:
        """See `Loss.sample_loss`."""
        loss = -step_share(terms) * terms.advantage * log_probs.sum()
        return step_loss(loss, log_probs, terms, contributes=terms.advantage != 0)


ALGORITHM = Algorithm(
    traits=AlgorithmTraits(learns_in_phases=True),
    episodes_per_batch=episodes_per_batch,
    planner=PhasePlanner,
    loss=Reinforce,
    options=StepOptions,
    changeable=CHANGEABLE | {"advantage_blend"},
    check=check_phases,
)
