"""Self-imitation learning (Oh et al. 2018, arXiv 1806.05635, eq. 2, the policy's part): what went better than expected is
imitated again.

    L = -1/N sum_j 1/|a_j| (R - V)_+ sum_t log pi(a_jt)

Without a critic, V is the mean reward of the episode's group: what the policy gets at this task on average.
The planner puts (R - V)_+ into the plan. No off-policy correction, as there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hindcast.core.rl.algorithm import Algorithm, AlgorithmTraits
from hindcast.core.seeds import derive_seed
from hindcast.core.settings.schema import LearnerSettings, Settings
from hindcast.events.catalogue import BatchPlanned
from hindcast.events.catalogue.curriculum import ONLINE
from hindcast.learner.algorithms.base import SampleLoss, SampleTerms, cloning_episodes_per_batch
from hindcast.learner.algorithms.cloning import Cloning
from hindcast.learner.buffer.groups import drop
from hindcast.learner.buffer.records import Episode, Group
from hindcast.learner.buffer.state import BufferState
from hindcast.learner.planners.base import BatchEntry, PolicyPlanner, as_fact, cut, why_unusable

if TYPE_CHECKING:
    import torch


class SelfImitation(Cloning):
    """The loss of self-imitation: that of cloning, each step times its advantage."""

    def sample_loss(self, log_probs: torch.Tensor, terms: SampleTerms) -> SampleLoss:
        """See `Loss.sample_loss`."""
        plain = super().sample_loss(log_probs, terms)
        return plain._replace(loss=terms.advantage * plain.loss, cloning=terms.advantage * plain.cloning)


class SuccessPlanner(PolicyPlanner):
    """Plans the run's own successes at tasks that it does not always win, each in several batches."""

    def wants(self, origin: str, settings: LearnerSettings) -> bool:
        """The run's own episodes; demonstrations are for the cloning before."""
        return origin == ONLINE

    def why_swept(self, state: BufferState, episode: Episode, settings: LearnerSettings) -> str | None:
        """`unsuccessful`: (R - V)_+ is 0. Nothing is too old to be imitated."""
        return "unsuccessful" if episode.outcome == "failure" else why_unusable(state, episode)

    def groups_swept(
        self, state: BufferState, swept: set[str], settings: LearnerSettings
    ) -> dict[str, list[str]]:
        """`agreed`: all members succeeded alike, so none did better than expected."""
        names = [
            episode.id
            for group_id in state.complete
            for episode, advantage in _better(state, state.groups[group_id])
            if advantage <= 0 and episode.id not in swept
        ]
        return {"agreed": names} if names else {}

    def plan(self, state: BufferState, settings: Settings) -> BatchPlanned | None:
        """Of complete groups, those used least first, in an order drawn from the run's seed, up to `cloning_batch` steps."""
        assert state.started is not None
        seed = state.started.run_seed
        pool = [
            (episode, advantage)
            for group_id in state.complete
            for episode, advantage in _better(state, state.groups[group_id])
            if advantage > 0
        ]
        pool.sort(
            key=lambda candidate: (
                candidate[0].uses,
                derive_seed(seed, "imitated", candidate[0].uses, candidate[0].id),
            )
        )
        planned: list[list[BatchEntry]] = []
        samples = 0
        for episode, advantage in pool:
            planned.append([BatchEntry(episode, episode.group, advantage)])
            samples += len(episode.samples)
            if samples >= settings.learner.cloning_batch:
                return as_fact(state, cut(planned, settings.learner.minibatches), planner=self)
        return None

    def use_up(self, state: BufferState, fact: BatchPlanned) -> None:
        """An episode takes part in up to `cloning_epochs` batches."""
        for name in dict.fromkeys(planned.episode for planned in fact.episodes):
            episode = state.episodes[name]
            episode.uses += 1
            if episode.uses >= state.settings.learner.cloning_epochs:
                drop(state, episode)


def _better(state: BufferState, group: Group) -> list[tuple[Episode, float]]:
    """The successes of a complete group and R - V, V being the mean reward over all members that a judge decided."""
    members = [state.episodes[group.members[index]] for index in sorted(group.members)]
    rewards = [
        member.reward for member in members if member.ended and member.outcome in ("success", "failure")
    ]
    return [
        (member, member.reward - sum(rewards) / len(rewards))
        for member in members
        if member.decided and member.succeeded and member.samples
    ]


ALGORITHM = Algorithm(
    traits=AlgorithmTraits(useless_outcome="failure", reuses_episodes=True),
    episodes_per_batch=cloning_episodes_per_batch,
    planner=SuccessPlanner,
    loss=SelfImitation,
)
