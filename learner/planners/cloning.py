"""Batches of successful steps to imitate: whole episodes, each in up to `cloning_epochs` batches.

Where nothing but demonstrations is imitated, and all of them are in, a batch smaller than `cloning_batch` is as large as
it will ever be: then it is what there is.
"""

from hindcast.core.seeds import derive_seed
from hindcast.core.settings.schema import LearnerSettings, Settings
from hindcast.events.catalogue import BatchPlanned
from hindcast.learner.buffer.groups import drop
from hindcast.learner.buffer.records import DEMONSTRATION, Episode
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
        """What there may be to imitate."""
        return origin in self._origins

    def why_swept(self, state: BufferState, episode: Episode, settings: LearnerSettings) -> str | None:
        """`unsuccessful`: there is nothing to imitate. Nothing is too old for that."""
        return "unsuccessful" if episode.outcome == "failure" else why_unusable(state, episode)

    def plan(self, state: BufferState, settings: Settings) -> BatchPlanned | None:
        """Those used least first, among them in an order drawn from the run's seed, until there are `cloning_batch` steps.

        Every episode is thus used once before any is used twice; each is used at most `cloning_epochs` times. A smaller
        batch is planned where no more can come.
        """
        assert state.started is not None
        seed = state.started.run_seed
        pool = [
            episode
            for episode in state.episodes.values()
            if episode.origin in self._origins and episode.decided and episode.succeeded and episode.samples
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
        return as_fact(state, cut(planned, settings.learner.minibatches), planner=self)

    def has_all(self, state: BufferState, settings: Settings) -> bool:
        """Whether everything there will ever be to imitate is in: of demonstrations alone that can be told."""
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
        """An episode takes part in several batches; at the run's beginning in as many as that takes."""
        for name in dict.fromkeys(planned.episode for planned in fact.episodes):
            episode = state.episodes[name]
            episode.uses += 1
            if episode.uses >= state.settings.learner.cloning_epochs and not clones_before(
                state, state.settings.learner
            ):
                drop(state, episode)
