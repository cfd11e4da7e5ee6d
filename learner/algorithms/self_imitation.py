"""Self-imitation learning (Oh et al. 2018, arXiv 1806.05635, eq. 2, the policy's part): what went better than expected is
imitated again.

    L = -1/N sum_j 1/|a_j| (R - V)_+ sum_t log pi(a_jt)

Without a critic, V is the mean reward of the episode's group: what the policy gets at this task on average.
`learner.planners.successes` puts (R - V)_+ into the plan. No off-policy correction, as there.
"""

import torch

from hindcast.learner.algorithms.base import SampleLoss, SampleTerms
from hindcast.learner.algorithms.cloning import Cloning


class SelfImitation(Cloning):
    """The loss of self-imitation: that of cloning, each step times its advantage."""

    def sample_loss(self, log_probs: torch.Tensor, terms: SampleTerms) -> SampleLoss:
        """See `Algorithm.sample_loss`."""
        plain = super().sample_loss(log_probs, terms)
        return plain._replace(loss=terms.advantage * plain.loss, cloning=terms.advantage * plain.cloning)
