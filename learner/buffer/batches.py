"""The part of the buffer's fold that the learner's own events change: batches, updates, weights and other blobs."""

from dataclasses import replace
from itertools import islice

import msgspec

from hindcast.core.domain.arrays import unpack_floats, unpack_positions
from hindcast.core.errors import CorruptEvent
from hindcast.core.rl.algorithm import options_as, traits_of
from hindcast.core.rl.algorithm_options import PhaseOptions
from hindcast.core.rl.combined_state import CRITIC, POLICY
from hindcast.events.catalogue import (
    BatchPlanned,
    BlobReleased,
    UpdateApplied,
    UpdateSkipped,
    WeightsPublished,
)
from hindcast.events.envelope import BlobRef, Recorded
from hindcast.learner.batch_plan import minibatches_of, planner_of
from hindcast.learner.buffer.groups import count_replays
from hindcast.learner.buffer.plannable import Plannable
from hindcast.learner.buffer.records import Batch
from hindcast.learner.buffer.state import BufferState

RELEASED_KEPT = 64
"""Released blobs remembered. Each is deleted before the next is released, so a crash leaves at most one undeleted."""


def take_plan(state: BufferState, recorded: Recorded, fact: BatchPlanned) -> None:
    """Take in a planned batch. Raises CorruptEvent if it names steps that the log does not hold."""
    plannable = Plannable(state, fact.model, fact.episodes)
    samples, succeeded, truncated = [], [], []
    positions = iter(unpack_positions(fact.positions).tolist())
    for planned in fact.episodes:
        episode, steps = plannable.find(planned)
        for position in islice(positions, planned.samples):
            if position not in steps:
                raise CorruptEvent(
                    f"batch {fact.batch} (position {recorded.position}) trains on the step at position {position}, which "
                    "the log does not hold for any of its episodes, or which was used up before."
                )
            samples.append(steps[position])
        succeeded.append(episode is not None and episode.succeeded)
        truncated.append(episode is not None and episode.truncated)
    state.plan = fact
    state.batch = Batch(
        number=fact.batch,
        position=recorded.position,
        event=recorded.envelope.id,
        settings=state.settings.learner,
        samples=samples,
        succeeded=succeeded,
        truncated=truncated,
        replays=count_replays(state, fact.episodes),
        reference=_published(state, fact.reference_version),
        follows_cloning=_follows_cloning(state, fact),
        values={} if fact.critic_version is None else dict(state.first_values),
    )
    reference = fact.reference_version
    if reference is not None and reference not in (fact.version, *state.references):
        state.references.append(reference)
    state.batches = fact.batch + 1
    planner_of(fact.algorithm).use_up(state, fact)


def _follows_cloning(state: BufferState, fact: BatchPlanned) -> bool:
    cloned = 0 < state.cloned_version == fact.version
    return cloned and fact.model == POLICY and not traits_of(fact.algorithm).sets_reference


def _published(state: BufferState, version: int | None) -> BlobRef | None:
    """The weights of a version, or None if they were released."""
    published = None if version is None else state.weights.get(version)
    return None if published is None else published.weights


def take_update(state: BufferState, fact: UpdateApplied | UpdateSkipped) -> None:
    """Take in a computed mini-batch, applied or skipped."""
    if isinstance(fact, UpdateApplied):
        if fact.model == POLICY:
            state.updates = fact.update
        else:
            state.models[fact.model] = replace(state.auxiliary_model(fact.model), updates=fact.update)
        if fact.model == CRITIC:
            _take_values(state, fact)
    if state.batch is not None:
        state.batch.done = fact.minibatch + 1


def _take_values(state: BufferState, fact: UpdateApplied) -> None:
    """Take in the critic's estimates for the states of a mini-batch, from before its step, where they are its first."""
    plan, batch = state.plan, state.batch
    if plan is None or batch is None or options_as(batch.settings, PhaseOptions).phase_values != "first_seen":
        return
    minibatch = minibatches_of(plan)[fact.minibatch]
    outcomes = [
        planned.reward
        for planned in plan.episodes[minibatch.first_episode : minibatch.end_episode]
        for _ in range(planned.samples)
    ]
    samples = batch.samples[minibatch.first_sample : minibatch.end_sample]
    differences = unpack_floats(fact.samples.advantages).tolist()
    if len(differences) != len(samples):
        raise CorruptEvent(
            f"update {fact.update} of the critic tells of {len(differences)} samples, and its mini-batch has {len(samples)}"
        )
    for sample, outcome, difference in zip(samples, outcomes, differences, strict=True):
        state.first_values.setdefault(sample.position, outcome - difference)


def take_weights(state: BufferState, fact: WeightsPublished) -> None:
    """Take in published weights; they end the current batch."""
    if fact.model == POLICY:
        state.version = fact.version
        state.weights[fact.version] = fact
        state.phase, state.first_values, state.perplexities = [], {}, {}  # all belong to the policy before it
        if state.plan is not None and traits_of(state.plan.algorithm).sets_reference:
            state.cloned_version = fact.version
    else:
        auxiliary = state.auxiliary_model(fact.model)
        weights = auxiliary.weights | {fact.version: fact}
        state.models[fact.model] = replace(auxiliary, version=fact.version, weights=weights)
    if fact.version > 0:
        state.batch = None
        state.plan = None


def take_release(state: BufferState, fact: BlobReleased) -> None:
    """Take in the release of a blob, which is deleted already or soon."""
    if fact.page:
        return  # none of ours; another episode may show the same page again
    state.released.pop(fact.blob.sha256, None)
    state.released[fact.blob.sha256] = fact.blob
    if len(state.released) > RELEASED_KEPT:
        del state.released[next(iter(state.released))]
    for projection, snapshots in state.snapshots.items():
        state.snapshots[projection] = [
            snapshot for snapshot in snapshots if snapshot.blob.sha256 != fact.blob.sha256
        ]
    state.checkpoints = [
        msgspec.structs.replace(
            checkpoint, shards=tuple(shard for shard in checkpoint.shards if shard != fact.blob)
        )
        for checkpoint in state.checkpoints
        if checkpoint.blob.sha256 != fact.blob.sha256
    ]
    state.weights = _without(state.weights, fact.blob)
    for name, auxiliary in state.models.items():
        state.models[name] = replace(auxiliary, weights=_without(auxiliary.weights, fact.blob))


def _without(weights: dict[int, WeightsPublished], released: BlobRef) -> dict[int, WeightsPublished]:
    return {
        version: published
        for version, published in weights.items()
        if published.weights.sha256 != released.sha256
    }
