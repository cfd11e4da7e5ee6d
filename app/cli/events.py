"""Selects events of a log, and formats them for people: one line, in full, or as counts."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec
from numpy.typing import NDArray

from hindcast.app.cli.output import moment, shorten
from hindcast.core.domain.arrays import unpack_floats, unpack_ids, unpack_positions
from hindcast.core.domain.task import Task
from hindcast.core.errors import CorruptEvent, HindcastError, SettingsError
from hindcast.core.rl.combined_state import POLICY
from hindcast.core.text.nearest import advice
from hindcast.events.catalogue import (
    BatchPlanned,
    EpisodeEnded,
    EpisodeRequested,
    TaskProposed,
    WeightsAdopted,
    WeightsPublished,
)
from hindcast.events.codec import decode
from hindcast.events.envelope import Fact, Recorded, Stored
from hindcast.events.log.hash_chain import ChainChecker
from hindcast.events.log.port import EventLog
from hindcast.events.log.reader import skim
from hindcast.events.registry import BY_CLASS, BY_NAME


class EventSelection(msgspec.Struct, kw_only=True):
    """Selects events. A task's selection includes its episodes' events, once `learn` has seen their requests."""

    types: tuple[str, ...] = ()
    """Names or patterns such as `episode.*`; empty: all."""
    episode: str | None = None
    task: str | None = None
    """Id, `store/buy`, `store/buy:3`, or a pattern."""
    policy: int | None = None
    """Policy version."""
    producer: str | None = None
    """Name or pattern such as `actor.*`."""
    _tasks: set[str] = msgspec.field(default_factory=set)
    """Ids of matching tasks."""
    _episodes: set[str] = msgspec.field(default_factory=set)
    """Episodes of the matching tasks."""

    def learn(self, fact: Fact) -> None:
        """Learn tasks and their episodes from one fact."""
        if self.task is not None and isinstance(fact, TaskProposed | EpisodeRequested):
            if _is_called(fact.task, self.task):
                self._tasks.add(fact.task.id)
            if isinstance(fact, EpisodeRequested) and fact.task.id in self._tasks:
                self._episodes.add(fact.episode)

    def takes(self, recorded: Recorded) -> bool:
        """Whether the selection contains an event. Call it for all events in order."""
        self.learn(recorded.fact)
        envelope = recorded.envelope
        if self.types and not any(fnmatchcase(envelope.type, pattern) for pattern in self.types):
            return False
        if self.producer is not None and not fnmatchcase(envelope.producer, self.producer):
            return False
        if self.policy is not None and not _is_of_version(recorded, self.policy):
            return False
        about = {envelope.entity, envelope.correlation, getattr(recorded.fact, "episode", None)}
        if self.episode is not None and self.episode not in about:
            return False
        return self.task is None or self._is_of_task(recorded.fact, about)

    def _is_of_task(self, fact: Fact, about: set[str | None]) -> bool:
        task = getattr(fact, "task", None)
        named = task.id if isinstance(task, Task) else getattr(fact, "task_id", None)
        return named in self._tasks or not self._episodes.isdisjoint(one for one in about if one)

    @property
    def everything(self) -> bool:
        """Whether the selection contains all events."""
        chosen = (self.episode, self.task, self.policy, self.producer)
        return not self.types and all(one is None for one in chosen)


def select(
    types: Sequence[str] | None,
    episode: str | None,
    producer: str | None = None,
    *,
    task: str | None = None,
    policy: int | None = None,
) -> EventSelection:
    """Build a selection.

    Raises:
        SettingsError: a type matches no event; names the nearest type.

    """
    for pattern in types or ():
        if not any(fnmatchcase(name, pattern) for name in BY_NAME):
            raise SettingsError(f"--type {pattern}: no event has this type; {advice(pattern, BY_NAME)}")
    return EventSelection(
        types=tuple(types or ()), episode=episode, task=task, policy=policy, producer=producer
    )


async def learn_tasks(log: EventLog, selection: EventSelection, *, until: int) -> None:
    """Let a selection by task learn its tasks and episodes from the events up to `until`."""
    if selection.task is None:
        return
    for family in sorted({BY_CLASS[kind].family for kind in (TaskProposed, EpisodeRequested)}):
        async for recorded in skim(log, family=family, until=until):
            selection.learn(recorded.fact)


def _is_called(task: Task, pattern: str) -> bool:
    kind = task.full_family
    return any(fnmatchcase(name, pattern) for name in (task.id, kind, f"{kind}:{task.seed}"))


def _is_of_version(recorded: Recorded, version: int) -> bool:
    """Whether a policy version caused this event, or the event published, used or adopted that version."""
    match recorded.fact:
        case EpisodeEnded(policy_versions=(low, high)):
            return low <= version <= high
        case WeightsPublished(model=model, version=own):
            return model == POLICY and own == version
        case WeightsAdopted(version=own) | BatchPlanned(version=own):
            return own == version
        case _:
            return recorded.envelope.policy_version == version


PAYLOAD_WIDTH = 110
HEAD_BYTES = 64
UNPACKED: dict[str, Callable[[bytes], NDArray[Any]]] = {
    "prompt_ids": unpack_ids,
    "action_ids": unpack_ids,
    "versions": unpack_ids,
    "minibatches": unpack_ids,
    "logprobs": unpack_floats,
    "perplexities": unpack_floats,
    "positions": unpack_positions,
}
"""Fields that hold packed numbers."""


def as_line(recorded: Recorded) -> str:
    """Format an event as one line: position, time, type, entity, producer and the start of the payload."""
    envelope = recorded.envelope
    payload = recorded.describe()["payload"]
    rest = {name: value for name, value in payload.items() if value != envelope.entity}
    text = msgspec.json.encode(rest).decode()
    return (
        f"{recorded.position:>8}  {moment(envelope.occurred_ns)}  {envelope.type:<18}  {envelope.entity:<20}  "
        f"{envelope.producer:<12}  {shorten(text, PAYLOAD_WIDTH)}"
    )


def describe(recorded: Recorded, *, arrays: bool = False) -> dict[str, Any]:
    """Convert an event to plain values; with `arrays`, packed numbers become lists."""
    plain = recorded.describe()
    if arrays:
        packed = {name: getattr(recorded.fact, name) for name in UNPACKED if hasattr(recorded.fact, name)}
        plain["payload"].update({name: UNPACKED[name](value).tolist() for name, value in packed.items()})
    return {**plain, "digest": recorded.digest.hex()}


def describe_stored(stored: Stored, *, arrays: bool = False) -> dict[str, Any]:
    """Describe a stored event; if it does not decode, give the error and the start of its bytes."""
    try:
        recorded = decode(stored)
        assert recorded is not None
        return describe(recorded, arrays=arrays)
    except HindcastError as error:
        return {
            "position": stored.position,
            "subject": stored.subject,
            "id": stored.id,
            "bytes": len(stored.data),
            "head": stored.data[:HEAD_BYTES].hex(),
            "error": str(error),
        }


def fields_of(recorded: Recorded) -> Iterator[str]:
    """Yield every value of an event, envelope and payload, as `payload.action.name=click`."""
    yield from _flat("", recorded.describe())


def _flat(path: str, value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _flat(f"{path}.{key}" if path else str(key), item)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _flat(f"{path}.{index}", item)
    elif value is not None:
        yield f"{path}={value}"


class ChainStats(msgspec.Struct, kw_only=True):
    """Counts of one producer's events, and the state of its hash chains."""

    events: int = 0
    incarnations: int = 0
    """Starts of the process; each has its own chain."""
    first: int = 0
    last: int = 0
    broken: str | None = None
    """The first fault of its chains; None if there is none."""


class Stats(msgspec.Struct, kw_only=True):
    """Counts over a part of the log; `add` takes its events in order."""

    events: int = 0
    payload_bytes: int = 0
    first: int = 0
    last: int = 0
    began_ns: int = 0
    ended_ns: int = 0
    by_type: Counter[str] = msgspec.field(default_factory=Counter)
    by_producer: Counter[str] = msgspec.field(default_factory=Counter)
    bytes_by_type: Counter[str] = msgspec.field(default_factory=Counter)

    def add(self, recorded: Recorded) -> None:
        """Count one event."""
        envelope = recorded.envelope
        size = len(memoryview(envelope.payload))
        self.events += 1
        self.payload_bytes += size
        self.by_type[envelope.type] += 1
        self.bytes_by_type[envelope.type] += size
        self.by_producer[envelope.producer] += 1
        self.first = self.first or recorded.position
        self.last = recorded.position
        self.began_ns = min(self.began_ns or envelope.occurred_ns, envelope.occurred_ns)
        self.ended_ns = max(self.ended_ns, envelope.occurred_ns)

    @property
    def seconds(self) -> float:
        """Time from the first event to the last, by the producers' clocks."""
        return max(0.0, (self.ended_ns - self.began_ns) / 1e9)

    def per_minute(self, number: int) -> float:
        """A rate over the part; 0 if it has no duration."""
        return 60 * number / self.seconds if self.seconds else 0.0


class Chains:
    """Checks the hash chains of every producer and continues after faults."""

    def __init__(self, *, after: int) -> None:
        """`after`: position before the first event; chains may have begun earlier."""
        self.producers: dict[str, ChainStats] = {}
        self._after = after
        self._checkers: dict[str, ChainChecker] = {}

    def check(self, recorded: Recorded) -> None:
        """Check one event of any type."""
        envelope = recorded.envelope
        stats = self.producers.setdefault(envelope.producer, ChainStats(first=recorded.position))
        stats.events += 1
        stats.last = recorded.position
        if envelope.incarnation not in self._checkers:
            self._checkers[envelope.incarnation] = ChainChecker(after=self._after)
            stats.incarnations += 1
        try:
            self._checkers[envelope.incarnation].check(recorded)
        except CorruptEvent as error:
            stats.broken = stats.broken or str(error)
            # later events are compared with this one
            self._checkers[envelope.incarnation] = ChainChecker(after=recorded.position)
