"""Mappers of events about the run as a whole, and of events that become notices, one line of text each."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from hindcast.core.text.counts import count_of
from hindcast.events.catalogue import (
    BlobReleased,
    ControlApplied,
    ControlRequested,
    DecisionKept,
    EpisodeRelabeled,
    EvaluationFinished,
    EvaluationStarted,
    EventDeadLettered,
    InjectionSeen,
    LearnerStarted,
    LogRepaired,
    LogSealed,
    MismatchExceeded,
    PhaseStarted,
    PolicyServerTroubled,
    QueueRepaired,
    RecipeChanged,
    ReplayScored,
    RunFinished,
    RunForked,
    RunResumed,
    RunStarted,
    SegmentArchived,
    SnapshotSaved,
    VerdictDisputed,
    WaitExceeded,
)
from hindcast.events.catalogue.consulted import Consulted
from hindcast.events.envelope import Fact, Recorded
from hindcast.events.registry import BY_CLASS
from hindcast.storage.readmodel.row_operations import (
    Ensure,
    Insert,
    Operation,
    Put,
    Values,
    clean_text,
    fact_to_json,
    finite,
    small_integer,
    to_json,
    without_bytes,
)


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


Purpose = Literal["verdict", "relabel", "task", "feasibility"]


def consultation(
    recorded: Recorded, purpose: Purpose, about: str, consulted: Consulted | None
) -> Iterable[Insert]:
    """The row of a fact's question; none if no model was asked."""
    if consulted is None:
        return
    yield Insert(
        "consultations",
        {
            "purpose": purpose,
            "about": clean_text(about),
            "model": clean_text(consulted.model),
            "prompt_tokens": small_integer(consulted.prompt_tokens),
            "answer_tokens": small_integer(consulted.answer_tokens),
            "requests": small_integer(consulted.tries),
            "occurred_ns": recorded.envelope.occurred_ns,
            "cost_usd": finite(consulted.cost_usd),
        },
    )


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
    number = len(fact.positions) // 8
    scored = f"{count_of(number, 'stored step')} {'was' if number == 1 else 'were'} scored"
    return str(fact.version), f"{scored} under version {fact.version}"


def _notice_mapper(
    describe: Callable[..., tuple[str, str]],
) -> Callable[[Recorded, Fact], Iterable[Operation]]:
    def mapper(recorded: Recorded, fact: Fact) -> Iterable[Operation]:
        return (notice(recorded, *describe(fact)),)

    return mapper


def _decision_kept(fact: DecisionKept) -> tuple[str, str]:
    if fact.plan is not None:
        return f"batch_{fact.plan.batch}", f"batch {fact.plan.batch} is kept, less what is left out"
    names = () if fact.swept is None else fact.swept.episodes
    return "samples", f"the sweep of {count_of(len(names), 'episode')} is kept, less what is left out"


def _learner_started(recorded: Recorded, fact: LearnerStarted) -> Iterable[Operation]:
    machine = fact.fingerprint
    return (
        _put_run(recorded, fingerprint=to_json(machine)),
        notice(
            recorded,
            recorded.envelope.run,
            f"the learner computes on {machine.platform}, {machine.processor}",
        ),
    )


TOLD: dict[type, Callable[..., Iterable[Operation]]] = {
    DecisionKept: _notice_mapper(_decision_kept),
    WaitExceeded: _notice_mapper(_wait_exceeded),
    PolicyServerTroubled: _notice_mapper(_server_troubled),
    MismatchExceeded: _notice_mapper(_mismatch_exceeded),
    InjectionSeen: _notice_mapper(_injection_seen),
    EventDeadLettered: _notice_mapper(_dead_lettered),
    QueueRepaired: _notice_mapper(_queue_repaired),
    BlobReleased: _notice_mapper(_blob_released),
    SnapshotSaved: _notice_mapper(_snapshot_saved),
    SegmentArchived: _notice_mapper(_segment_archived),
    LogRepaired: _notice_mapper(_log_repaired),
    ControlRequested: _notice_mapper(_control_requested),
    ControlApplied: _notice_mapper(_control_applied),
    EpisodeRelabeled: _relabeled,
    VerdictDisputed: _notice_mapper(_disputed),
    ReplayScored: _notice_mapper(_replay_scored),
}
"""Mappers of events that become a notice; a relabel by an endpoint also has its cost."""


def _put_run(recorded: Recorded, **values: object) -> Put:
    return Put("runs", (recorded.envelope.run,), values)


def _beginning(recorded: Recorded, fact: RunStarted) -> Values:
    """The columns that describe how a run or a fork began."""
    return {
        "state": "started",
        "recipe": fact.recipe,
        "run_seed": small_integer(fact.run_seed),
        "base_policy": fact.base_policy.sha256,
        "base_policy_name": fact.base_policy_name,
        "settings": to_json(fact.settings),
        "packages": to_json(fact.packages),
        "fingerprint": to_json(fact.fingerprint),
        "behaviour": to_json(fact.behaviour),
        "started_ns": recorded.envelope.occurred_ns,
        "started_position": recorded.position,
    }


def _started(recorded: Recorded, fact: RunStarted) -> Iterable[Operation]:
    base: Values = {
        "sha256": fact.base_policy.sha256,
        "size_bytes": fact.base_policy.size,
        "at_update": 0,
        "occurred_ns": recorded.envelope.occurred_ns,
    }
    return (
        _put_run(recorded, phase=0, **_beginning(recorded, fact)),
        Ensure("weights", ("policy", 0), base),
    )


def _resumed(recorded: Recorded, fact: RunResumed) -> Iterable[Operation]:
    goal = ", ".join(f"{name}={count}" for name, count in sorted(fact.until.items())) or "none"
    return (
        _put_run(
            recorded,
            state="resumed",
            goal=to_json(fact.until),
            fingerprint=to_json(fact.fingerprint),
            finished_reason=None,
        ),
        notice(
            recorded, recorded.envelope.run, f"resumed after position {fact.after_position}; goal: {goal}"
        ),
    )


def _forked(recorded: Recorded, fact: RunForked) -> Iterable[Operation]:
    return (
        _put_run(
            recorded,
            parent=fact.parent,
            forked_at=fact.at_position,
            **({} if fact.start is None else _beginning(recorded, fact.start)),
        ),
        notice(
            recorded,
            fact.parent,
            f"begins as {fact.parent} up to position {fact.at_position}{_left_out_text(fact)}",
        ),
    )


def _left_out_text(fact: RunForked) -> str:
    """What a derived run leaves out, in words."""
    if fact.derived is None:
        return ""
    judged = f", judged by {fact.derived.judge}" if fact.derived.judge else ""
    return f", then without {count_of(len(fact.derived.episodes), 'episode')} ({fact.derived.choice}){judged}"


def _finished(recorded: Recorded, fact: RunFinished) -> Iterable[Operation]:
    text = f"finished after {count_of(fact.updates, 'update')} and {count_of(fact.episodes, 'episode')}: {fact.reason}"
    return (
        _put_run(recorded, state="finished", finished_reason=fact.reason),
        notice(recorded, recorded.envelope.run, text),
    )


def _recipe_changed(recorded: Recorded, fact: RecipeChanged) -> Iterable[Operation]:
    changed = ", ".join(f"{key} = {value}" for key, value in sorted(_dotted(fact.changes)))
    return (notice(recorded, recorded.envelope.run, f"{fact.author} set {changed}: {fact.reason}"),)


def _dotted(changes: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Settings by dotted key, out of their sections."""
    for key, value in changes.items():
        if isinstance(value, Mapping):
            yield from _dotted(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _sealed(recorded: Recorded, fact: LogSealed) -> Iterable[Operation]:
    return (
        _put_run(recorded, state="sealed"),
        notice(recorded, "log", f"sealed with {count_of(fact.events, 'event')}"),
    )


def _phase_started(recorded: Recorded, fact: PhaseStarted) -> Iterable[Operation]:
    text = f"phase {fact.phase} begins with version {fact.reference_version} as its reference"
    return (_put_run(recorded, phase=fact.phase), notice(recorded, str(fact.phase), text))


def _evaluation_started(recorded: Recorded, fact: EvaluationStarted) -> Iterable[Operation]:
    values: Values = {
        "state": "running",
        "version": small_integer(fact.version),
        "tasks": len(fact.tasks),
        "temperatures": to_json(fact.temperatures),
        "skipped": to_json(fact.skipped),
        "started_ns": recorded.envelope.occurred_ns,
    }
    return (Put("evaluations", (small_integer(fact.number),), values),)


def _evaluation_finished(recorded: Recorded, fact: EvaluationFinished) -> Iterable[Operation]:
    values: Values = {
        "state": "finished",
        "version": small_integer(fact.version),
        "version_low": small_integer(fact.version_low),
        "version_high": small_integer(fact.version_high),
        "seconds": finite(fact.seconds),
        "share": finite(fact.share),
        "reason": clean_text(fact.reason) or None,
        "finished_ns": recorded.envelope.occurred_ns,
    }
    yield Put("evaluations", (small_integer(fact.number),), values)
    for index, result in enumerate(fact.results):
        environment, _, family = result.family.partition("/")
        yield Insert(
            "evaluation_results",
            {
                "place": index,
                "number": small_integer(fact.number),
                "version": small_integer(fact.version),
                "temperature": finite(result.temperature),
                "environment": clean_text(environment),
                "family": clean_text(family),
                "successes": small_integer(result.successes),
                "failures": small_integer(result.failures),
                "lost": small_integer(result.lost),
                "reward": finite(result.reward),
            },
        )


RUNNING: dict[type, Callable[..., Iterable[Operation]]] = {
    RunStarted: _started,
    RunResumed: _resumed,
    LearnerStarted: _learner_started,
    RunForked: _forked,
    RunFinished: _finished,
    RecipeChanged: _recipe_changed,
    LogSealed: _sealed,
    PhaseStarted: _phase_started,
    EvaluationStarted: _evaluation_started,
    EvaluationFinished: _evaluation_finished,
    **TOLD,
}
"""Mappers of this file and of the notices."""
