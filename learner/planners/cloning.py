"""Batches of episodes to imitate (cloning), each used in up to `cloning_epochs` batches: successes, and demonstrations that
failed where `cloning_failures` says so.

If only demonstrations are imitated and all of them have ended, a batch may be smaller than `cloning_batch`.
"""

from hindcast.core.seeds import derive_seed
from hindcast.core.settings.schema import LearnerSettings, Settings
from hindcast.events.catalogue import BatchPlanned
from hindcast.events.catalogue.curriculum import DEMONSTRATION
from hindcast.learner.buffer.groups import drop
from hindcast.learner.buffer.records import Episode
from hindcast.learner.buffer.state import BufferState
from hindcast.learner.planners.base import (
    BatchEntry,
    PolicyPlanner,
    as_fact,
    clones_before,
    cut,
    why_unusable,
)


class CloningPlanner(PolicyPlanner):
    """Imitates demonstrations alone, or the run's own successes as well."""

    def __init__(self, name: str, *, origins: frozenset[str]) -> None:
        super().__init__(name)
        self._origins = origins

    def wants(self, origin: str, settings: LearnerSettings) -> bool:
        """See `PolicyPlanner`."""
        return origin in self._origins

    def why_swept(self, state: BufferState, episode: Episode, settings: LearnerSettings) -> str | None:
        """`unsuccessful`: a failure is not imitated, unless it is a demonstration and those are. No episode is too old."""
        if episode.outcome == "failure" and not _is_imitated(episode, settings):
            return "unsuccessful"
        return why_unusable(state, episode)

    def plan(self, state: BufferState, settings: Settings) -> BatchPlanned | None:
        """Episodes used least first, ties in an order drawn from the run's seed, until there are `cloning_batch` steps.

        So every episode is used once before any is used twice. The batch is smaller if no more can come.
        """
        assert state.started is not None
        seed = state.started.run_seed
        pool = [
            episode
            for episode in state.episodes.values()
            if episode.origin in self._origins
            and episode.decided
            and _is_imitated(episode, settings.learner)
            and episode.samples
        ]
        pool.sort(key=lambda episode: (episode.uses, derive_seed(seed, "cloning", episode.uses, episode.id)))
        planned: list[list[BatchEntry]] = []
        samples = 0
        for episode in pool:
            planned.append([BatchEntry(episode, episode.group, 1.0)])
            samples += len(episode.samples)
            if samples >= settings.learner.cloning_batch:
                break
        else:
            if not (planned and self.has_all(state, settings)):
                return None
        parts = settings.learner.cloning_minibatches or settings.learner.minibatches
        return as_fact(state, cut(planned, parts), planner=self)

    def has_all(self, state: BufferState, settings: Settings) -> bool:
        """Whether no further episode to imitate can come, which is known only of demonstrations."""
        return (
            self._origins == {DEMONSTRATION}
            and state.shown >= settings.curriculum.demonstrations
            and not any(
                episode.group in state.groups and not state.groups[episode.group].complete
                for episode in state.episodes.values()
                if episode.origin == DEMONSTRATION
            )
        )

    def missing(self, state: BufferState, settings: Settings) -> str:
        """See `PolicyPlanner.missing`."""
        if not self.has_all(state, settings):
            return ""
        return (
            f"a demonstration to imitate: all {state.shown} were played, and none that succeeded is left. Fork the run with "
            "more curriculum.demonstrations or other families"
        )

    def use_up(self, state: BufferState, fact: BatchPlanned) -> None:
        """Count the uses; drop an episode after `cloning_epochs`, but not during the first cloning updates."""
        for name in dict.fromkeys(planned.episode for planned in fact.episodes):
            episode = state.episodes[name]
            episode.uses += 1
            if episode.uses >= state.settings.learner.cloning_epochs and not clones_before(
                state, state.settings.learner
            ):
                drop(state, episode)


def _is_imitated(episode: Episode, settings: LearnerSettings) -> bool:
    return episode.succeeded or (settings.cloning_failures and episode.origin == DEMONSTRATION)
