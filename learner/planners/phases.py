"""Phases (WebRL, AWR, DigiRL and REINFORCE): first a batch of the critic, then one of the policy on the same episodes.

    phase_episodes decided ──> steps of earlier phases scored ──> critic's batch ──> policy's batch ──> used up

Both go `epochs` times through the phase's episodes and what is replayed of earlier ones, in mini-batches of whole
episodes whose order is drawn anew each time. The policy's advantages come from the critic just trained
(`critic_version`); a KL reference is the policy at the phase's start.
"""

from collections.abc import Sequence

from hindcast.core.rl.combined_state import CRITIC
from hindcast.core.seeds import derive_seed
from hindcast.core.settings.schema import LearnerSettings, Settings
from hindcast.events.catalogue import BatchPlanned
from hindcast.learner.buffer.group_completion import drop
from hindcast.learner.buffer.phases import (
    collected,
    in_phases,
    replayed,
    replays_demonstrations,
    store_earlier,
    unscored,
    valued,
)
from hindcast.learner.buffer.records import DEMONSTRATION, Episode
from hindcast.learner.buffer.state import BufferState
from hindcast.learner.planners.base import BatchEntry, PolicyPlanner, as_fact, cut, why_unusable


class PhasePlanner(PolicyPlanner):
    """The policy's part of a phase."""

    def __init__(self, name: str, *, reference: bool = False) -> None:
        """`reference`: whether the loss compares with the policy at the phase's start."""
        super().__init__(name)
        self._reference = reference

    def wants(self, origin: str, settings: LearnerSettings) -> bool:
        """What the policy has played, and demonstrations where phases replay them."""
        return origin == "online" or (origin == DEMONSTRATION and replays_demonstrations(settings))

    def why_swept(self, state: BufferState, episode: Episode, settings: LearnerSettings) -> str | None:
        """Failures teach, too, and nothing is too old. A demonstration is remembered apart from its verdict on."""
        if episode.origin == DEMONSTRATION and episode.outcome in ("success", "failure"):
            return "past" if episode.succeeded else "unsuccessful"
        return why_unusable(state, episode)

    def plan(self, state: BufferState, settings: Settings) -> BatchPlanned | None:
        """The policy's batch of the phase that the critic has been trained on."""
        own, learner = valued(state), settings.learner
        if not own:
            return None
        return as_fact(
            state,
            _parts(state, own, learner, replay=True, epochs=learner.epochs),
            planner=self,
            reference_version=state.version if self._reference else None,
            critic_version=state.beside(CRITIC).version,
        )

    def use_up(self, state: BufferState, fact: BatchPlanned) -> None:
        """Each phase is trained on once; its successes may be replayed in later ones."""
        names = {planned.episode for planned in fact.episodes if planned.kept is None}
        for episode in sorted((state.episodes[name] for name in names), key=lambda one: one.judged):
            store_earlier(state, episode)
            drop(state, episode)
        state.phase = []


class CriticPhasePlanner:
    """The critic's part of a phase, before the policy's."""

    name = CRITIC
    model = CRITIC

    def plan(self, state: BufferState, settings: Settings) -> BatchPlanned | None:
        """The critic's batch of the phase that is due."""
        learner = settings.learner
        if not in_phases(state) or valued(state) or unscored(state, learner):
            return None
        own = collected(state, learner)
        if not own:
            return None
        parts = _parts(state, own, learner, replay=learner.critic_replay, epochs=learner.critic_epochs)
        return as_fact(state, parts, planner=self)

    def use_up(self, state: BufferState, fact: BatchPlanned) -> None:
        """The policy comes next, on the same episodes."""
        state.phase = list(dict.fromkeys(one.episode for one in fact.episodes if one.kept is None))


def episodes_per_batch(settings: Settings) -> int:
    """A phase, and a group more, so that a group can be begun while one episode is missing."""
    return settings.learner.phase_episodes + settings.curriculum.group_size


def check_phases(settings: Settings) -> list[str]:
    """What an algorithm that learns in phases needs of the settings."""
    if settings.learner.phase_episodes:
        return []
    return [
        f"learner.phase_episodes = 0 leaves learner.algorithm = {settings.learner.algorithm!r} without a phase to train on: say "
        "how many episodes fill one"
    ]


def _parts(
    state: BufferState, own: Sequence[Episode], learner: LearnerSettings, *, replay: bool, epochs: int
) -> list[list[BatchEntry]]:
    """Mini-batches of a phase's own episodes and the replayed ones, in an order of its own each time through."""
    assert state.started is not None
    seed = state.started.run_seed
    entries = [BatchEntry(one, one.group, 0.0) for one in own]
    if replay:
        steps = sum(len(one.samples) for one in own)
        entries += [
            BatchEntry(one.episode, one.episode.group, 0.0, kept=one.kept)
            for one in replayed(state, learner, steps=steps)
        ]
    parts: list[list[BatchEntry]] = []
    for epoch in range(epochs):
        order = sorted(
            entries, key=lambda one: derive_seed(seed, "phase", state.batches, epoch, one.episode.id)
        )
        parts += cut([[one] for one in order], learner.minibatches)
    return parts
