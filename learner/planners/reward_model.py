"""Batches of the outcome reward model, on schedule: whenever so many episodes were labelled, as many of both classes."""

from math import ceil

from hindcast.core.rl.combined_state import ORM
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import BatchPlanned
from hindcast.learner.buffer.state import BufferState
from hindcast.learner.planners.base import BatchEntry, as_fact, in_turn


class RewardModelPlanner:
    """See `learner.planners.base.Planner`."""

    name = ORM
    model = ORM

    def plan(self, state: BufferState, settings: Settings) -> BatchPlanned | None:
        """Mini-batches of `orm_batch` episodes, half of them successes, once `orm_every` were labelled since the last batch.

        There are as many as let each newly labelled episode be seen `orm_epochs` times if it came alone; those used least
        come first, so that older ones are gone through again beside the new ones, and the rarer class more often.
        """
        learner, outcomes = settings.learner, state.outcomes
        due = learner.orm_every > 0 and outcomes.fresh >= learner.orm_every
        if not due or not outcomes.successes or not outcomes.failures:
            return None
        parts = ceil(learner.orm_every * learner.orm_epochs / learner.orm_batch)
        half = learner.orm_batch // 2
        successes = in_turn(state, outcomes.successes, count=parts * half, model=ORM)
        failures = in_turn(state, outcomes.failures, count=parts * half, model=ORM)
        return as_fact(
            state,
            [
                [
                    BatchEntry(episode, episode.group, 0.0)
                    for episode in (*successes[part::parts], *failures[part::parts])
                ]
                for part in range(parts)
            ],
            planner=self,
        )

    def use_up(self, state: BufferState, fact: BatchPlanned) -> None:
        """What was labelled counts as seen; it stays until newer ones take its place."""
        state.outcomes.fresh = 0
        known = state.outcomes.known()
        for planned in fact.episodes:
            known[planned.episode].uses += 1
