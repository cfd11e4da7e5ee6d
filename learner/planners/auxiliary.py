"""Batches of the outcome reward model and of the learned relabeler, on schedule: whenever there are enough new examples.

As many mini-batches are made as let each new example be used `orm_epochs` or `relabeler_epochs` times if it came alone. Examples
used least come first, so that older ones are used again next to the new ones.
"""

from collections.abc import Iterable, Sequence
from math import ceil

from hindcast.core.rl.combined_state import ORM, RELABELER
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import BatchPlanned
from hindcast.learner.buffer.records import Episode
from hindcast.learner.buffer.state import BufferState
from hindcast.learner.planners.base import BatchEntry, Planner, as_fact, in_turn


class RewardModelPlanner:
    """See `learner.planners.base.Planner`."""

    name = ORM
    model = ORM

    def plan(self, state: BufferState, settings: Settings) -> BatchPlanned | None:
        """Mini-batches of `orm_batch` episodes, half of them successes, once `orm_every` were labelled since the last batch.

        Episodes of the rarer class are used more often.
        """
        learner, outcomes = settings.learner, state.outcomes
        is_due = learner.orm_every > 0 and outcomes.fresh >= learner.orm_every
        if not is_due or not outcomes.successes or not outcomes.failures:
            return None
        count = ceil(learner.orm_every * learner.orm_epochs / learner.orm_batch)
        half = learner.orm_batch // 2
        successes = in_turn(state, outcomes.successes, count=count * half, model=ORM)
        failures = in_turn(state, outcomes.failures, count=count * half, model=ORM)
        minibatches = [(*successes[index::count], *failures[index::count]) for index in range(count)]
        return _as_fact(state, minibatches, planner=self)

    def use_up(self, state: BufferState, fact: BatchPlanned) -> None:
        """Count the examples as used; they stay until newer ones take their place."""
        state.outcomes.fresh = 0
        _count_uses(state.outcomes.known().values(), fact)


class RelabelerPlanner:
    """See `learner.planners.base.Planner`."""

    name = RELABELER
    model = RELABELER

    def plan(self, state: BufferState, settings: Settings) -> BatchPlanned | None:
        """Mini-batches of `relabeler_batch` examples, once `relabeler_every` came since the last batch."""
        learner, lessons = settings.learner, state.lessons
        is_due = learner.relabeler_every > 0 and lessons.fresh >= learner.relabeler_every
        if (
            not is_due or not lessons.known
        ):  # a fork that trained no such model dropped all, and kept counting
            return None
        size = learner.relabeler_batch
        count = ceil(learner.relabeler_every * learner.relabeler_epochs / size)
        examples = in_turn(state, lessons.known, count=count * size, model=RELABELER)
        return _as_fact(
            state, [examples[index * size : (index + 1) * size] for index in range(count)], planner=self
        )

    def use_up(self, state: BufferState, fact: BatchPlanned) -> None:
        """Count the examples as used; they stay until newer ones take their place."""
        state.lessons.fresh = 0
        _count_uses(state.lessons.known, fact)


def _as_fact(
    state: BufferState, minibatches: Sequence[Sequence[Episode]], *, planner: Planner
) -> BatchPlanned:
    entries = [
        [BatchEntry(episode, episode.group, 0.0) for episode in minibatch] for minibatch in minibatches
    ]
    return as_fact(state, entries, planner=planner)


def _count_uses(examples: Iterable[Episode], fact: BatchPlanned) -> None:
    by_id = {episode.id: episode for episode in examples}
    for planned in fact.episodes:
        by_id[planned.episode].uses += 1
