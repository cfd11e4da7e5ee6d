"""DAPO, decoupled clip and dynamic sampling policy optimization (arXiv 2503.14476, eq. 8 to 13).

    L = -1/T sum over tokens of w min(rho A, clip(rho, 1-low, 1+high) A)        T: tokens of the mini-batch

What it changes in GRPO, and where it is:

- Clip-higher (eq. 10): clips .2 below and .28 above.
- Dynamic sampling (eq. 11): groups whose results agree are left out, and others played (`group_filter`). Results are compared
  before their lengths are punished, as in the released code, whose filter asks for the accuracy.
- Token-level mean (eq. 12): one mean over all tokens. `learner.loss_mean` has no effect.
- Overlong reward shaping (eq. 13): R + R_length, which falls linearly to -penalty over the last part of the allowed length. The
  paper measures a response in tokens. An episode of the web is cut off by steps, so its length is its number of steps and L_max
  its task's limit of steps; answers are short, and one that is cut off is no action (`format_penalty`).
- Overlong filtering (section 3.4; the released recipe has shaping alone): episodes that were cut off have no part in the loss and none in T.
  They still count in the mean and deviation of their group.

A is GRPO's, w the off-policy correction (`core.rl.importance_weights`). The paper has no KL penalty.
"""

from __future__ import annotations

from collections.abc import Sequence

from hindcast.core.rl.advantages import overlong_term
from hindcast.core.rl.algorithm import Algorithm, AlgorithmTraits, options_as
from hindcast.core.rl.algorithm_options import NotNegative, Share
from hindcast.core.rl.loss_normalization import EpisodeTokens, token_shares
from hindcast.core.settings.schema import LearnerSettings
from hindcast.learner.algorithms.base import EpisodePart
from hindcast.learner.algorithms.grpo import CHANGEABLE, Grpo, GrpoOptions, check
from hindcast.learner.buffer.groups import GroupSlot
from hindcast.learner.buffer.records import Episode
from hindcast.learner.buffer.state import BufferState
from hindcast.learner.planners.groups import GroupPlanner, episodes_per_batch


class DapoOptions(GrpoOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of DAPO."""

    overlong_penalty: NotNegative = 0.5
    """Most that the length of an episode takes from its reward; 0: none. .5 is half of what a success is worth, as the
    paper's 1 is with rewards of -1 and 1."""
    overlong_buffer: Share = 0.2
    """Last part of the task's limit of steps, over which the penalty rises from 0 (the paper: 4096 of 20480 tokens)."""
    overlong_filter: bool = False
    """Whether the loss leaves out episodes that ended at the task's limit of steps."""
    kl_coefficient: NotNegative = 0.0
    """Weight of the k3 estimate of KL to the reference policy; the paper has none."""


class DapoPlanner(GroupPlanner):
    """Plans groups as M-GRPO does, with rewards that the length of an episode lowers."""

    def compared(
        self, state: BufferState, members: Sequence[Episode], settings: LearnerSettings
    ) -> list[GroupSlot]:
        """See `GroupPlanner.compared`: each with its length term."""
        options = options_as(settings, DapoOptions)
        buffer, penalty = options.overlong_buffer, options.overlong_penalty
        return [
            slot._replace(
                length_term=overlong_term(
                    slot.episode.steps, slot.episode.max_steps, buffer=buffer, penalty=penalty
                )
            )
            for slot in super().compared(state, members, settings)
        ]


class Dapo(Grpo):
    """The loss of DAPO."""

    def mean(self, episodes: Sequence[EpisodeTokens]) -> list[float]:
        """See `GroupLoss.mean`: over all tokens."""
        return token_shares(episodes)

    def is_compared(self, episode: EpisodePart) -> bool:
        """See `GroupLoss.is_compared`: not if it was cut off and `overlong_filter` is on."""
        left_out = options_as(self.settings, DapoOptions).overlong_filter and episode.truncated
        return super().is_compared(episode) and not left_out


ALGORITHM = Algorithm(
    traits=AlgorithmTraits(compares="groups", group_advantages=True, limits_staleness=True),
    episodes_per_batch=episodes_per_batch,
    planner=DapoPlanner,
    loss=Dapo,
    options=DapoOptions,
    changeable=CHANGEABLE | {"overlong_penalty", "overlong_buffer", "overlong_filter"},
    check=check,
)
