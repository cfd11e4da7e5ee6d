"""Mappers of batches, updates, weights and checkpoints: the chain from a step to the weights it made."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice, repeat

from hindcast.core.domain.arrays import unpack_floats, unpack_ids, unpack_positions
from hindcast.core.text.counts import count_of
from hindcast.events.catalogue import (
    BatchPlanned,
    CheckpointSaved,
    SamplesSwept,
    UpdateApplied,
    UpdateSkipped,
    WeightsAdopted,
    WeightsPublished,
)
from hindcast.events.envelope import Recorded
from hindcast.storage.readmodel.mapping.run import notice
from hindcast.storage.readmodel.row_operations import (
    CopiedValue,
    Ensure,
    Insert,
    InsertMany,
    Operation,
    Put,
    Values,
    finite,
    finite_all,
    small_integer,
    to_json,
)

POLICY = "policy"
"""The model whose plans name the episodes it learns from; others read verdicts or goals."""


def _batch_planned(recorded: Recorded, fact: BatchPlanned) -> Iterable[Operation]:
    positions = unpack_positions(fact.positions).tolist()
    sizes = unpack_ids(fact.minibatches).tolist()
    yield Insert(
        "batches",
        {
            "batch": fact.batch,
            "model": fact.model,
            "algorithm": fact.algorithm,
            "log_digest": fact.log_digest.hex(),
            "config_digest": fact.config_digest,
            "as_of": fact.as_of,
            "seed": small_integer(fact.seed),
            "version": fact.version,
            "reference_version": fact.reference_version,
            "proximal_version": fact.proximal_version,
            "critic_version": fact.critic_version,
            "samples": len(positions),
            "minibatches": len(sizes),
            "episodes": len({planned.episode for planned in fact.episodes if not planned.rehearsed}),
            "rehearsed": len({planned.episode for planned in fact.episodes if planned.rehearsed}),
            "consumed": len(fact.consumed),
            "occurred_ns": recorded.envelope.occurred_ns,
            "code_rev": recorded.envelope.code_rev,
        },
    )
    epochs: Counter[tuple[str, str, bool, int | None]] = Counter()
    for index, planned in enumerate(fact.episodes):
        occurrence = (planned.group, planned.episode, planned.rehearsed, planned.relabel)
        values: Values = {
            "batch": fact.batch,
            "episode": planned.episode,
            "group_id": planned.group,
            "replaces": planned.replaces,
            "place": index,
            "samples": planned.samples,
            "reward": finite(planned.reward),
            "format_term": finite(planned.format_term),
            "length_term": finite(planned.length_term),
            "advantage": finite(planned.advantage),
            "epoch": epochs[occurrence],
            "kept": None if planned.kept is None else sum(planned.kept),
            "relabel": planned.relabel,
            "trained": not planned.rehearsed,
            "rehearsed": planned.rehearsed,
        }
        epochs[occurrence] += 1
        yield Insert("batch_episodes", values)
        if fact.model == POLICY:
            task = CopiedValue("episodes", (planned.episode,), ("task",))
            yield Ensure("planned_first", (planned.episode,), {"batch": fact.batch}, taken=task)
    for index, episode in enumerate(fact.consumed, start=len(fact.episodes)):
        values = {"batch": fact.batch, "episode": episode, "place": index, "samples": 0}
        yield Insert("batch_episodes", {**values, "trained": False, "rehearsed": False})
    sample_places: Iterator[tuple[int | None, int | None]] = (
        (minibatch, index) for minibatch, size in enumerate(sizes) for index in range(size)
    )
    owners = (planned.episode for planned in fact.episodes for _ in range(planned.samples))
    placed = list(islice(chain(sample_places, repeat((None, None))), len(positions)))
    yield InsertMany(
        "batch_samples",
        {"batch": fact.batch},
        {
            "sample": range(len(positions)),
            "minibatch": [minibatch for minibatch, _ in placed],
            "place": [sample_place for _, sample_place in placed],
            "step_position": [small_integer(position) for position in positions],
            "episode": list(islice(chain(owners, repeat(None)), len(positions))),
        },
    )


def _update_applied(recorded: Recorded, fact: UpdateApplied) -> Iterable[Operation]:
    report = fact.samples
    columns = [unpack_floats(packed).tolist() for packed in (report.advantages, report.weights)]
    columns += [unpack_floats(packed).tolist() for packed in (report.ratios, report.masks)]
    yield Insert(
        "updates",
        {
            "model": fact.model,
            "outcome": "applied",
            "before": fact.before,
            "after": fact.after,
            "inputs": fact.inputs,
            "metrics": to_json(fact.metrics),
            "update_number": fact.update,
            "batch": fact.batch,
            "minibatch": fact.minibatch,
            "samples": max(map(len, columns)),
            "occurred_ns": recorded.envelope.occurred_ns,
            "duration_ms": finite(fact.duration_ms),
            "cpu_ms": finite(fact.cpu_ms),
            "code_rev": recorded.envelope.code_rev,
        },
    )
    samples = max(map(len, columns))
    names = ("advantage", "weight", "ratio", "mask")
    sample_columns = {
        name: finite_all(islice(chain(column, repeat(None)), samples))
        for name, column in zip(names, columns, strict=True)
    }
    yield InsertMany(
        "update_samples",
        {
            "model": fact.model,
            "update_number": fact.update,
            "batch": fact.batch,
            "minibatch": fact.minibatch,
        },
        {"place": range(samples), **sample_columns},
    )


def _update_skipped(recorded: Recorded, fact: UpdateSkipped) -> Iterable[Operation]:
    yield Insert(
        "updates",
        {
            "model": fact.model,
            "outcome": "skipped",
            "before": fact.state,
            "after": fact.state,
            "reason": fact.reason,
            "update_number": fact.update,
            "batch": fact.batch,
            "minibatch": fact.minibatch,
            "samples": 0,
            "occurred_ns": recorded.envelope.occurred_ns,
            "code_rev": recorded.envelope.code_rev,
        },
    )
    yield notice(recorded, str(fact.batch), f"update of batch {fact.batch} left out: {fact.reason}")


def _samples_swept(recorded: Recorded, fact: SamplesSwept) -> Iterable[Operation]:
    episodes = list(dict.fromkeys(fact.episodes))
    for episode in episodes:
        yield Put("episodes", (episode,), {"swept": fact.reason})
    yield notice(
        recorded, fact.reason, f"{count_of(len(episodes), 'episode')} will not be trained on: {fact.reason}"
    )


def _weights_published(recorded: Recorded, fact: WeightsPublished) -> Iterable[Operation]:
    values = {
        "sha256": fact.weights.sha256,
        "size_bytes": fact.weights.size,
        "at_update": fact.update,
        "occurred_ns": recorded.envelope.occurred_ns,
    }
    return (Put("weights", (fact.model, fact.version), values),)


def _weights_adopted(recorded: Recorded, fact: WeightsAdopted) -> Iterable[Operation]:
    values = {
        "actor": fact.actor,
        "version": fact.version,
        "occurred_ns": recorded.envelope.occurred_ns,
        "load_ms": finite(fact.load_ms),
    }
    return (Insert("adoptions", values),)


def _checkpoint_saved(recorded: Recorded, fact: CheckpointSaved) -> Iterable[Operation]:
    values = {
        "update_number": fact.update,
        "batch": fact.batch,
        "version": fact.version,
        "size_bytes": sum(part.size for part in fact.parts),
        "occurred_ns": recorded.envelope.occurred_ns,
        "state": fact.state,
        "sha256": fact.blob.sha256,
    }
    return (Insert("checkpoints", values),)


TRAINING: dict[type, Callable[..., Iterable[Operation]]] = {
    BatchPlanned: _batch_planned,
    UpdateApplied: _update_applied,
    UpdateSkipped: _update_skipped,
    SamplesSwept: _samples_swept,
    WeightsPublished: _weights_published,
    WeightsAdopted: _weights_adopted,
    CheckpointSaved: _checkpoint_saved,
}
"""Mappers of this file."""
