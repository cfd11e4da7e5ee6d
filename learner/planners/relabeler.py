"""Batches of the learned relabeler, on schedule: whenever there are so many new lessons."""

from math import ceil

from hindcast.core.rl.combined_state import RELABELER
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import BatchPlanned
from hindcast.learner.buffer.state import BufferState
from hindcast.learner.planners.base import BatchEntry, as_fact, in_turn


class RelabelerPlanner:
    """See `learner.planners.base.Planner`."""

    name = RELABELER
    model = RELABELER

    def plan(self, state: BufferState, settings: Settings) -> BatchPlanned | None:
        """Mini-batches of `relabeler_batch` lessons, once `relabeler_every` came since the last batch.

        There are as many as let each new lesson be seen `relabeler_epochs` times if it came alone; those used least come
        first, so that older ones are gone through again beside the new ones.
        """
        learner, lessons = settings.learner, state.lessons
        due = learner.relabeler_every > 0 and lessons.fresh >= learner.relabeler_every
        if not due or not lessons.known:  # a fork that trained no such model has let go of all, and counts on
            return None
        size = learner.relabeler_batch
        parts = ceil(learner.relabeler_every * learner.relabeler_epochs / size)
        chosen = in_turn(state, lessons.known, count=parts * size, model=RELABELER)
        return as_fact(
            state,
            [
                [
                    BatchEntry(episode, episode.group, 0.0)
                    for episode in chosen[part * size : (part + 1) * size]
                ]
                for part in range(parts)
            ],
            planner=self,
        )

    def use_up(self, state: BufferState, fact: BatchPlanned) -> None:
        """What there is to learn counts as seen; it stays until newer ones take its place."""
        state.lessons.fresh = 0
        known = {episode.id: episode for episode in state.lessons.known}
        for planned in fact.episodes:
            known[planned.episode].uses += 1
