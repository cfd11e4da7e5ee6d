"""RLOO (arXiv 2402.14740) as a plugin: REINFORCE whose baseline is the mean reward of the other members of a group.

L = -1/N sum_i (R_i - mean of the others' R) sum_t w log pi(a_t)        w: the off-policy correction
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from hindcast.core.rl.algorithm import Algorithm, AlgorithmTraits, options_of
from hindcast.core.rl.algorithm_options import GroupOptions, Positive
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
    rehearsal_coefficient: Positive = 0.5
    """c: weight of the cloning term on rehearsed successes (`rehearsal_episodes`)."""


class RlooPlanner(GroupPlanner):
    """Plans whole groups as M-GRPO does, with other advantages."""

    def plan(self, state: BufferState, settings: Settings) -> BatchPlanned | None:
        """The next batch, or None while there is not enough for one. Rehearsed episodes keep advantage 0."""
        made, scale = super().plan(state, settings), options_of(settings.learner).scale
        if made is None:
            return None
        rewards: dict[str, dict[str, float]] = defaultdict(dict)
        for one in made.episodes:
            if not one.rehearsed:
                rewards[one.group][one.episode] = one.reward + one.format_term
        episodes = []
        for one in made.episodes:
            if not one.rehearsed:
                members = rewards[one.group]
                others = [reward for name, reward in members.items() if name != one.episode]
                advantage = scale * (members[one.episode] - sum(others) / len(others))
                one = msgspec.structs.replace(one, advantage=advantage)
            episodes.append(one)
        return msgspec.structs.replace(made, episodes=tuple(episodes))


class Rloo:
    """The loss."""

    def __init__(self, settings: LearnerSettings) -> None:
        """`settings`: the section `learner`."""
        self._options = options_of(settings)

    def shares(self, episodes: Sequence[EpisodePart]) -> tuple[list[float], list[float]]:
        """See `Loss.shares`: compared episodes have a share in the policy term, rehearsed ones in the cloning term."""
        compared = sum(not one.rehearsed for one in episodes)
        rehearsed = len(episodes) - compared
        shares, cloning = [], []
        for one in episodes:
            steps, tokens = len(one.tokens.tokens), sum(one.tokens.tokens)
            imitated = self._options.rehearsal_coefficient / (rehearsed * tokens) if one.rehearsed else 0.0
            shares += [0.0 if one.rehearsed else 1.0 / compared] * steps
            cloning += [imitated] * steps
        return shares, cloning

    def sample_loss(self, log_probs: torch.Tensor, terms: SampleTerms) -> SampleLoss:
        """See `Loss.sample_loss`."""
        import torch

        weights = torch.from_numpy(terms.correction.weights)
        policy = -terms.share * terms.advantage * (weights * log_probs).sum()
        cloning = -terms.cloning_share * log_probs.sum()
        loss = policy + cloning
        if terms.reference is not None:
            difference = torch.from_numpy(terms.reference) - log_probs
            penalty = (torch.exp(difference) - difference - 1).sum()
            loss = loss + terms.share * self._options.kl_coefficient * penalty
        told = step_loss(loss, log_probs, terms, contributes=True)
        return told._replace(policy=float(policy.detach()), cloning=float(cloning.detach()))


ALGORITHM = Algorithm(
    traits=AlgorithmTraits(compares="groups", limits_staleness=True),
    episodes_per_batch=episodes_per_batch,
    planner=RlooPlanner,
    loss=Rloo,
    options=RlooOptions,
    changeable=CHANGEABLE | {"scale", "rehearsal_coefficient"},
)
