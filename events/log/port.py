"""The port `EventLog`, against which the whole system is written, never against a broker.

One contract suite (`tests/contract/test_event_log.py`) runs on every adapter.
"""

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

import msgspec

from hindcast.events.envelope import Record, Stored


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """Condition of an append (optimistic concurrency): the last event under a subject is at a given position."""

    subject: str
    """Subject or wildcard."""
    last: int
    """Position of its last event; 0: there is none."""


class Ancestor(msgspec.Struct, frozen=True, kw_only=True):
    """A run whose log is the beginning of a fork's log."""

    run: str
    until: int
    """Position of its last event that belongs to the fork."""


class LogIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Identity of a log, which distinguishes logs of the same name, and its extent."""

    run: str
    first_digest: bytes
    """sha256 of the first event's stored bytes; empty for an empty log."""
    first: int
    """Position of the first event; 0 for an empty log."""
    last: int
    """Position of the last event; for an empty log, the position before its first event to come."""


class EventLog(Protocol):
    """An ordered, durable, append-only sequence of events of one run."""

    @property
    def run(self) -> str:
        """The run this log belongs to."""
        ...

    @property
    def lineage(self) -> tuple[Ancestor, ...]:
        """Runs from which the run was forked, oldest first; empty unless it is a fork."""
        ...

    async def append(self, batch: Sequence[Record], *, expect: Expectation | None = None) -> list[int]:
        """Append all or nothing; return the positions once the events are durable.

        Safe to repeat with identical records: a record whose id is already stored is not stored twice.

        Raises:
            ExpectationFailed: another writer came first; nothing was appended.
            LogFull: the stream's size limit is reached; nothing was appended.
            BrokerUnreachable: the outcome stayed unknown for longer than the adapter's bound.

        """
        ...

    async def read(self, *, after: int, limit: int) -> list[Stored]:
        """Read up to `limit` events following position `after`, contiguous, in order; empty at the end."""
        ...

    def tail(self, *, after: int, headers: bool = True) -> AsyncGenerator[list[Stored], None]:
        """Yield all events following `after`, then new ones as they come, in batches, forever.

        Without `headers`, which cost time and which a checked reader does not need, subjects and ids may be `UNREAD`, and
        the trace context is empty.
        """
        ...

    async def last_under(self, subject: str, *, until: int | None = None) -> Stored | None:
        """Find the last event under a subject or wildcard, up to position `until` if given; None if there is none."""
        ...

    async def identity(self) -> LogIdentity:
        """Return the log's identity and extent."""
        ...
