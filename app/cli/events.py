"""Formats events for people: one line, in full, or as counts."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from numpy.typing import NDArray

from hindcast.app.cli.output import moment, shorten
from hindcast.core.domain.arrays import unpack_floats, unpack_ids, unpack_positions
from hindcast.core.errors import CorruptEvent, HindcastError
from hindcast.events.codec import decode
from hindcast.events.envelope import Recorded, Stored
from hindcast.events.log.hash_chain import ChainChecker

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
    """Position, time, type, entity, producer and the beginning of the payload."""
    envelope = recorded.envelope
    payload = recorded.describe()["payload"]
    rest = {name: value for name, value in payload.items() if value != envelope.entity}
    told = msgspec.json.encode(rest).decode()
    return (
        f"{recorded.position:>8}  {moment(envelope.occurred_ns)}  {envelope.type:<18}  {envelope.entity:<20}  "
        f"{envelope.producer:<12}  {shorten(told, PAYLOAD_WIDTH)}"
    )


def describe(recorded: Recorded, *, arrays: bool = False) -> dict[str, Any]:
    """An event as plain values; with `arrays`, packed numbers as lists."""
    plain = recorded.describe()
    if arrays:
        packed = {name: getattr(recorded.fact, name) for name in UNPACKED if hasattr(recorded.fact, name)}
        plain["payload"].update({name: UNPACKED[name](value).tolist() for name, value in packed.items()})
    return {**plain, "digest": recorded.digest.hex()}


def describe_stored(stored: Stored, *, arrays: bool = False) -> dict[str, Any]:
    """The event at a position; if it does not decode, the error and the beginning of its bytes."""
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
    """Every value of an event, envelope and payload, as `payload.action.name=click`."""
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
