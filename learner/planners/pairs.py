"""Batches of pairs for preference optimisation: a demonstration, then the agent's failure at the same task (ETO).

Invariant: every failure stands in one batch at most; a demonstration stands in as many pairs as its task has failures.
"""

from hindcast.core.rl.combined_state import POLICY
from hindcast.core.seeds import derive_seed
from hindcast.core.settings.schema import LearnerSettings, Settings
from hindcast.events.catalogue import BatchPlanned
from hindcast.learner.buffer.group_completion import drop
from hindcast.learner.buffer.records import DEMONSTRATION, Episode
from hindcast.learner.buffer.state import BufferState
from hindcast.learner.planners.base import BatchEntry, as_fact, cut, too_old, why_unusable

PAIRS = "dpo"
PREFERRED, OTHER = 1.0, -1.0
"""Planned advantages of a pair's two episodes."""


class PairPlanner:
    """See `learner.planners.base.Planner`."""

    name = PAIRS
    model = POLICY

    def wants(self, origin: str, settings: LearnerSettings) -> bool:
        """Demonstrations to prefer, and the policy's own episodes to prefer them to."""
        return origin in ("online", DEMONSTRATION)

    def why_swept(self, state: BufferState, episode: Episode, settings: LearnerSettings) -> str | None:
        """`unsuccessful`: a demonstration that failed; `successful`: an episode that did not; `stale`: a failure of too old
        a policy; `unpaired`: a failure at a task that nobody demonstrated.
        """
        if episode.origin == DEMONSTRATION:
            return "unsuccessful" if episode.outcome == "failure" else why_unusable(state, episode)
        if too_old(state, episode, settings):
            return "stale"
        if episode.outcome == "success":
            return "successful"
        if episode.decided and episode.samples and not _demonstrations(state, episode.task):
            return "unpaired"
        return why_unusable(state, episode)

    def groups_swept(
        self, state: BufferState, swept: set[str], settings: LearnerSettings
    ) -> dict[str, list[str]]:
        """Nobody is compared within a group."""
        return {}

    def plan(self, state: BufferState, settings: Settings) -> BatchPlanned | None:
        """The first `pair_batch` failures by the time of their verdict; of several demonstrations of a task one is drawn."""
        assert state.started is not None
        learner, seed = settings.learner, state.started.run_seed
        failures = [
            episode
            for episode in state.episodes.values()
            if episode.origin == "online" and episode.decided and not episode.succeeded and episode.samples
        ]
        failures.sort(key=lambda episode: episode.judged)
        pairs: list[list[BatchEntry]] = []
        for failure in failures:
            shown = _demonstrations(state, failure.task)
            if not shown:
                continue
            best = min(shown, key=lambda one: derive_seed(seed, "pair", failure.id, one.id))
            pairs.append([BatchEntry(best, best.group, PREFERRED), BatchEntry(failure, failure.group, OTHER)])
            if len(pairs) == learner.pair_batch:
                parts = cut(pairs, min(learner.minibatches, len(pairs))) * learner.epochs
                return as_fact(state, parts, planner=self, reference_version=state.cloned_version)
        return None

    def use_up(self, state: BufferState, fact: BatchPlanned) -> None:
        """Failures are used once; demonstrations stay."""
        for name in dict.fromkeys(one.episode for one in fact.episodes if one.advantage == OTHER):
            drop(state, state.episodes[name])


def any_demonstrated(state: BufferState) -> bool:
    """Whether a demonstration that may be preferred is there, or may still come of one under way."""
    return any(
        one.origin == DEMONSTRATION
        and not one.swept
        and one.gone is None
        and one.outcome in (None, "success")
        for one in state.episodes.values()
    )


def _demonstrations(state: BufferState, task: str) -> list[Episode]:
    """Of a task, successful ones, in the order of their requests."""
    return [
        episode
        for episode in state.episodes.values()
        if episode.origin == DEMONSTRATION
        and episode.task == task
        and episode.decided
        and episode.succeeded
        and episode.samples
    ]
