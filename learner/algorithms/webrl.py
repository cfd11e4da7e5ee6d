"""WebRL's actor: KL-constrained and off-policy (arXiv 2411.02337, eq. 5 and 7).

    paper:     L = mean over steps of (beta log(pi/pi_ref) - A)^2
    released:  L = mean over steps of [A > 0] smoothL1(beta r, A) / beta, with r = log(pi/pi_ref) / |a|

log pi of an action is the sum over its tokens, pi_ref the policy at the phase's start. In the released form
(`webrl/algorithms/webrl/trainer.py`) beta is not the setting: it is 1, or 5 where the reference was confident of the
action, and never beyond |A/r|, so that a step that has got as far as its advantage has no gradient left. There a beta for
A < 0 is chosen, too, which nothing can show, since such steps are left out.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

from hindcast.core.rl.algorithm import Algorithm, AlgorithmTraits, options_as
from hindcast.core.rl.algorithm_options import Positive
from hindcast.core.settings.schema import LearnerSettings
from hindcast.learner.algorithms.base import SampleLoss, SampleTerms
from hindcast.learner.algorithms.steps import StepLoss, StepOptions, step_loss, step_share
from hindcast.learner.planners.phases import CHANGEABLE, PhasePlanner, check_phases, episodes_per_batch

if TYPE_CHECKING:
    import torch

CONFIDENT = 0.8
"""Geometric mean of the reference's probabilities of an action's tokens from which on it was confident."""
PLAIN_BETA, CONFIDENT_BETA = 1.0, 5.0


class WebRlOptions(StepOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of WebRL."""

    loss: Literal["paper", "released"] = "paper"
    """Actor loss: `paper`: squared error; `released`: smooth L1 on good steps only."""
    beta: Positive = 0.3
    """In the paper's loss: the log(pi/pi_ref) that corresponds to an advantage of 1."""


class WebRl(StepLoss):
    """The actor loss of WebRL."""

    def __init__(self, settings: LearnerSettings) -> None:
        super().__init__(settings)
        self._options = options_as(settings, WebRlOptions)

    def sample_loss(self, log_probs: torch.Tensor, terms: SampleTerms) -> SampleLoss:
        """See `Loss.sample_loss`."""
        import torch

        assert terms.reference is not None, "a phase's plan names the policy at its start"
        ratio = (log_probs - torch.from_numpy(terms.reference)).sum()
        if self._options.loss == "paper":
            error = self._options.beta * ratio - terms.advantage
            return step_loss(step_share(terms) * error * error, log_probs, terms, contributes=True)
        ratio = ratio / len(log_probs)
        sureness = float(torch.from_numpy(terms.reference).mean().exp())
        beta = _released_beta(float(ratio.detach()), terms.advantage, sureness)
        target = torch.full_like(ratio, terms.advantage)
        loss = torch.nn.functional.smooth_l1_loss(beta * ratio, target) / beta
        counts = terms.advantage > 0
        return step_loss(step_share(terms) * counts * loss, log_probs, terms, contributes=counts)


def _released_beta(ratio: float, advantage: float, sureness: float) -> float:
    beta = CONFIDENT_BETA if sureness >= CONFIDENT else PLAIN_BETA
    return beta if ratio == 0 or advantage == 0 else min(beta, abs(advantage / ratio))


ALGORITHM = Algorithm(
    traits=AlgorithmTraits(learns_in_phases=True),
    episodes_per_batch=episodes_per_batch,
    planner=partial(PhasePlanner, reference=True),
    loss=WebRl,
    options=WebRlOptions,
    changeable=CHANGEABLE | {"beta", "advantage_blend"},
    check=check_phases,
)
