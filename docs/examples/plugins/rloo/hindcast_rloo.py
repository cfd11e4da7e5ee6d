"""RLOO (arXiv 2402.14740) as a plugin: REINFORCE whose baseline is the mean reward of the other members of a group.

L = -1/N sum_i (R_i - mean of the others' R) sum_t w log pi(a_t)        w: the off-policy correction
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from hindcast.core.rl.algorithm import Algorithm, AlgorithmTraits, options_of
from hindcast.core.rl.algorithm_options import GroupOptions
from hindcast.core.settings.schema import LearnerSettings, Settings
from hindcast.events.catalogue import BatchPlanned
from hindcast.learner.algorithms.base import EpisodePart, SampleLoss, SampleTerms
from hindcast.learner.algorithms.steps import step_loss
from hindcast.learner.buffer.state import BufferState
from hindcast.learner.planners.groups import CHANGEABLE, GroupPlanner, episodes_per_batch

if TYPE_CHECKING:
    import torch


class RlooOptions(GroupOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`learner.options` of this algorithm: those of its planner, and its own."""

    scale: float = 1.0
    """What advantages are multiplied by."""


class RlooPlanner(GroupPlanner):
    """Plans whole groups as M-GRPO does, with other advantages."""

    def plan(self, state: BufferState, settings: Settings) -> BatchPlanned | None:
        """The next batch, or None while there is not enough for one."""
        made, scale = super().plan(state, settings), options_of(settings.learner).scale
        if made is None:
            return None
        rewards: dict[str, dict[str, float]] = defaultdict(dict)
        for one in made.episodes:
            rewards[one.group][one.episode] = one.reward
        episodes = []
        for one in made.episodes:
            others = [reward for name, reward in rewards[one.group].items() if name != one.episode]
            advantage = scale * (one.reward - sum(others) / len(others))
            episodes.append(msgspec.structs.replace(one, advantage=advantage))
        return msgspec.structs.replace(made, episodes=tuple(episodes))


class Rloo:
    """The loss."""

    def __init__(self, settings: LearnerSettings) -> None:
        """It has no settings of its own."""

    def shares(self, episodes: Sequence[EpisodePart]) -> tuple[list[float], list[float]]:
        """See `Loss.shares`: a mean over episodes, a sum over their tokens."""
        shares = [1.0 / len(episodes) for episode in episodes for _ in episode.tokens.tokens]
        return shares, [0.0] * len(shares)

    def sample_loss(self, log_probs: torch.Tensor, terms: SampleTerms) -> SampleLoss:
        """See `Loss.sample_loss`."""
        import torch

        weights = torch.from_numpy(terms.correction.weights)
        loss = -terms.share * terms.advantage * (weights * log_probs).sum()
        return step_loss(loss, log_probs, terms, contributes=True)


ALGORITHM = Algorithm(
    traits=AlgorithmTraits(compares="groups", limits_staleness=True),
    episodes_per_batch=episodes_per_batch,
    planner=RlooPlanner,
    loss=Rloo,
    options=RlooOptions,
    changeable=CHANGEABLE | {"scale"},
)
