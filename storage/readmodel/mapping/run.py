"""Mappers of events about the run as a whole, together with the notices."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from hindcast.events.catalogue import (
    LogSealed,
    PhaseStarted,
    RecipeChanged,
    RunFinished,
    RunForked,
    RunResumed,
    RunStarted,
)
from hindcast.events.envelope import Recorded
from hindcast.storage.readmodel.column_values import small_integer, to_json
from hindcast.storage.readmodel.mapping.notices import TOLD, notice
from hindcast.storage.readmodel.row_operations import Ensure, Operation, Put, Values


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
        notice(recorded, fact.parent, f"begins as {fact.parent} up to position {fact.at_position}"),
    )


def _finished(recorded: Recorded, fact: RunFinished) -> Iterable[Operation]:
    text = f"finished after {fact.updates} updates and {fact.episodes} episodes: {fact.reason}"
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
        notice(recorded, "log", f"sealed with {fact.events} events"),
    )


def _phase_started(recorded: Recorded, fact: PhaseStarted) -> Iterable[Operation]:
    text = f"phase {fact.phase} begins with version {fact.reference_version} as its reference"
    return (_put_run(recorded, phase=fact.phase), notice(recorded, str(fact.phase), text))


RUNNING: dict[type, Callable[..., Iterable[Operation]]] = {
    RunStarted: _started,
    RunResumed: _resumed,
    RunForked: _forked,
    RunFinished: _finished,
    RecipeChanged: _recipe_changed,
    LogSealed: _sealed,
    PhaseStarted: _phase_started,
    **TOLD,
}
"""Mappers of this file and of the notices."""
