"""Mappers of events that become notices, one line of text each."""

from collections.abc import Callable, Iterable

import msgspec

from hindcast.events.catalogue import (
    BlobReleased,
    ControlApplied,
    ControlRequested,
    EpisodeRelabeled,
    EventDeadLettered,
    InjectionSeen,
    LogRepaired,
    MismatchExceeded,
    PolicyServerTroubled,
    QueueRepaired,
    ReplayScored,
    SegmentArchived,
    SnapshotSaved,
    VerdictDisputed,
    WaitExceeded,
)
from hindcast.events.envelope import Fact, Recorded
from hindcast.events.registry import BY_CLASS
from hindcast.storage.readmodel.column_values import clean_text, fact_to_json, without_bytes
from hindcast.storage.readmodel.mapping.endpoint_costs import consultation
from hindcast.storage.readmodel.row_operations import Insert, Operation


def notice(recorded: Recorded, about: str, text: str) -> Insert:
    """A notice about an entity, with the fact as detail."""
    envelope = recorded.envelope
    return Insert(
        "notices",
        {
            "type": envelope.type,
            "about": clean_text(about),
            "text": clean_text(text),
            "detail": fact_to_json(recorded.fact),
            "producer": envelope.producer,
            "occurred_ns": envelope.occurred_ns,
        },
    )


def general_notice(recorded: Recorded) -> Insert:
    """The notice of an event whose type has no mapper: its fields, about the episode that it refers to, or its entity."""
    fact = recorded.fact
    refs = BY_CLASS[type(fact)].refs
    episode = next(
        (getattr(fact, path) for path, kind in refs if kind == "episode" and "." not in path), None
    )
    fields = without_bytes(msgspec.to_builtins(fact, builtin_types=(bytes,)))
    text = ", ".join(f"{name} {value}" for name, value in fields.items() if value is not None)
    return notice(recorded, episode if isinstance(episode, str) else recorded.envelope.entity, text)


def _wait_exceeded(fact: WaitExceeded) -> tuple[str, str]:
    return fact.setting, f"waited {fact.limit_s:g} s for {fact.waited_for}: {fact.setting} is the bound"


def _server_troubled(fact: PolicyServerTroubled) -> tuple[str, str]:
    return fact.server, f"{fact.trouble}: {fact.detail}"


def _injection_seen(fact: InjectionSeen) -> tuple[str, str]:
    return fact.episode, f"step {fact.index}: the page tries to give instructions: {fact.excerpt}"


def _mismatch_exceeded(fact: MismatchExceeded) -> tuple[str, str]:
    return (
        f"batch_{fact.batch}",
        f"update {fact.update}: sampler and learner disagree about version {fact.version} by {fact.mismatch_kl:.2e} (KL), "
        f"above learner.mismatch_alarm = {fact.limit:g}",
    )


def _dead_lettered(fact: EventDeadLettered) -> tuple[str, str]:
    return (
        fact.consumer,
        f"{fact.consumer} set position {fact.position} aside after {fact.tries} tries: {fact.error}",
    )


def _queue_repaired(fact: QueueRepaired) -> tuple[str, str]:
    return fact.queue, f"the work queue {fact.queue} was made anew: {fact.wrong}"


def _blob_released(fact: BlobReleased) -> tuple[str, str]:
    return fact.blob.sha256, f"{fact.blob.size} bytes let go of: {fact.reason}"


def _snapshot_saved(fact: SnapshotSaved) -> tuple[str, str]:
    return (
        fact.projection,
        f"the {fact.projection}'s state up to position {fact.position} in {fact.blob.size} bytes",
    )


def _segment_archived(fact: SegmentArchived) -> tuple[str, str]:
    return fact.sha256, f"positions {fact.first} to {fact.last} stand in {fact.location}"


def _log_repaired(fact: LogRepaired) -> tuple[str, str]:
    return "log", f"positions {fact.first} to {fact.last} were written again: {fact.reason}"


def _control_requested(fact: ControlRequested) -> tuple[str, str]:
    return fact.command, f"{fact.author} asks for {fact.command}: {fact.reason}"


def _control_applied(fact: ControlApplied) -> tuple[str, str]:
    return fact.command, f"{fact.role} did {fact.command}"


def _relabeled(recorded: Recorded, fact: EpisodeRelabeled) -> Iterable[Operation]:
    yield notice(recorded, fact.episode, _goals_found(fact))
    yield from consultation(recorded, "relabel", fact.episode, fact.consulted)


def _goals_found(fact: EpisodeRelabeled) -> str:
    if fact.failure:
        return f"{fact.relabeler.name} cannot tell what it achieved: {fact.failure}"
    goals = "; ".join(relabel.instruction for relabel in fact.relabels) or "none"
    if fact.reading is not None and fact.reading.dropped:
        goals += f"; dropped as no goals: {fact.reading.dropped}"
    return f"goals that {fact.relabeler.name} found achieved: {goals}"


def _disputed(fact: VerdictDisputed) -> tuple[str, str]:
    return fact.episode, f"{fact.author} says {fact.outcome}, against {fact.judge.name}: {fact.reason}"


def _replay_scored(fact: ReplayScored) -> tuple[str, str]:
    return str(
        fact.version
    ), f"{len(fact.positions) // 8} stored steps were scored under version {fact.version}"


def _told(say: Callable[..., tuple[str, str]]) -> Callable[[Recorded, Fact], Iterable[Operation]]:
    def mapper(recorded: Recorded, fact: Fact) -> Iterable[Operation]:
        return (notice(recorded, *say(fact)),)

    return mapper


TOLD: dict[type, Callable[..., Iterable[Operation]]] = {
    WaitExceeded: _told(_wait_exceeded),
    PolicyServerTroubled: _told(_server_troubled),
    MismatchExceeded: _told(_mismatch_exceeded),
    InjectionSeen: _told(_injection_seen),
    EventDeadLettered: _told(_dead_lettered),
    QueueRepaired: _told(_queue_repaired),
    BlobReleased: _told(_blob_released),
    SnapshotSaved: _told(_snapshot_saved),
    SegmentArchived: _told(_segment_archived),
    LogRepaired: _told(_log_repaired),
    ControlRequested: _told(_control_requested),
    ControlApplied: _told(_control_applied),
    EpisodeRelabeled: _relabeled,
    VerdictDisputed: _told(_disputed),
    ReplayScored: _told(_replay_scored),
}
"""Mappers of events that become a notice; a relabel by an endpoint also has its cost."""
