"""What to train on next: pure functions of the buffer, so that a plan can be computed again from the log alone.

Invariant 3, plan before training: a `BatchPlanned` names every sample, in order, before any number is computed from
it. Two learners, or a learner and `verify`, that folded the log to the same position plan the same batch, however the
events reached them. Which batches an algorithm wants is its planner's concern (`learner.planners`).
"""

import msgspec

from hindcast.core.domain.arrays import unpack_ids
from hindcast.core.errors import CorruptEvent
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import BatchPlanned, SamplesSwept
from hindcast.learner.buffer.records import Episode
from hindcast.learner.buffer.state import BufferState
from hindcast.learner.planners import clones_before, planner_due, planners_due
from hindcast.learner.planners.base import PolicyPlanner


def sweep(state: BufferState, settings: Settings) -> list[SamplesSwept]:
    """Episodes that will not be trained on, by reason, each once; computed before a batch is planned.

    - `late`: it ended after its group had been used up.
    - `undecided`: the training judge could not tell. `empty`: it ended without a step.
    - `past`: a demonstration that only the cloning at the beginning had a use for, or that phases remember apart.
    - what the algorithm's planner gives up: `stale`, `agreed`, `alone`, `unsuccessful` (see `learner.planners`).

    Swept at once and not when the next batch is full, so that what became of an episode can be read at any time and a
    run whose groups mostly agree holds on to nothing.
    """
    planner = planner_due(state, settings.learner)
    reasons: dict[str, list[str]] = {}
    for episode in state.episodes.values():
        reason = _why_swept(state, episode, planner, settings)
        if reason is not None:
            reasons.setdefault(reason, []).append(episode.id)
    swept = {name for names in reasons.values() for name in names}
    for reason, names in planner.groups_swept(state, swept, settings.learner).items():
        reasons.setdefault(reason, []).extend(names)
    return [
        SamplesSwept(
            episodes=tuple(reasons[reason]), reason=reason, version=state.version, as_of=state.position
        )
        for reason in sorted(reasons)
    ]


def _why_swept(
    state: BufferState, episode: Episode, planner: PolicyPlanner, settings: Settings
) -> str | None:
    if episode.swept or not episode.ended:
        return None
    if episode.group not in state.groups:
        return "late"
    if not planner.wants(episode.origin, settings.learner):
        # an online episode may end while the run still clones, and will be of use after it
        return None if clones_before(state, settings.learner) else "past"
    return planner.why_swept(state, episode, settings.learner)


def plan(state: BufferState, settings: Settings) -> BatchPlanned | None:
    """The next batch, or None while there is not enough for one.

    Raises nothing and changes nothing; equal states give equal plans.
    """
    if state.batch is not None or state.started is None:
        return None
    for planner in planners_due(state, settings.learner):
        planned = planner.plan(state, settings)
        if planned is not None:
            return planned
    return None


def missing(state: BufferState, settings: Settings) -> str:
    """What there is no batch for the want of, in words."""
    lacking = planner_due(state, settings.learner).missing(state, settings)
    return lacking or f"a batch of version {state.version}; {len(state.complete)} groups are complete"


class Minibatch(msgspec.Struct, frozen=True):
    """One mini-batch's part of a plan, as half-open ranges of its episodes and samples."""

    first_episode: int
    end_episode: int
    first_sample: int
    end_sample: int


def minibatches_of(fact: BatchPlanned) -> list[Minibatch]:
    """How a plan's episodes and samples fall to its mini-batches, in order.

    Raises:
        CorruptEvent: a mini-batch ends within an episode, or the counts do not add up; `plan` makes no such plan.

    """
    parts: list[Minibatch] = []
    episode, sample = 0, 0
    for size in unpack_ids(fact.minibatches).tolist():
        end_episode, end_sample = episode, sample
        while end_sample < sample + size and end_episode < len(fact.episodes):
            end_sample += fact.episodes[end_episode].samples
            end_episode += 1
        if end_sample != sample + size:
            raise CorruptEvent(
                f"batch {fact.batch} cuts an episode between two mini-batches, or names too few episodes"
            )
        parts.append(Minibatch(episode, end_episode, sample, end_sample))
        episode, sample = end_episode, end_sample
    if episode != len(fact.episodes) or sample * 8 != len(fact.positions):
        raise CorruptEvent(
            f"batch {fact.batch} holds episodes or samples that are in none of its mini-batches"
        )
    return parts
