"""The port to the log. Everything else in the system is written against it, never against a broker.

One contract suite (`tests/contract/test_event_log.py`) runs on every adapter.
"""

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

import msgspec

from hindcast.events.envelope import Record, Stored


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """Append only if the last event under `subject` (a wildcard is allowed) is at position `last`; 0: there is none."""

    subject: str
    last: int


class Ancestor(msgspec.Struct, frozen=True, kw_only=True):
    """A run whose log is the beginning of another's."""

    run: str
    until: int
    """Position of its last event that belongs to the descendant."""


class LogIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Enough to tell one log from another under the same name."""

    run: str
    first_digest: bytes
    """sha256 of the first event's stored bytes; empty for an empty log."""
    first: int
    last: int
    """Position of the last event; when empty, the one before the first that will be: 0 unless the log begins later."""


class EventLog(Protocol):
    """An ordered, durable, append-only sequence of events of one run."""

    @property
    def run(self) -> str:
        """The run this log belongs to."""
        ...

    @property
    def lineage(self) -> tuple[Ancestor, ...]:
        """Runs that the run was forked from, oldest first: whose events stand up to where. Empty for most."""
        ...

    async def append(self, batch: Sequence[Record], *, expect: Expectation | None = None) -> list[int]:
        """Append all or nothing; returns the positions once the events are durable.

        Safe to repeat with identical records: a record whose id is stored already is not stored twice.

        Raises:
            ExpectationFailed: another writer came first; nothing was appended.
            LogFull: the stream's size limit is reached; nothing was appended.
            BrokerUnreachable: the outcome stayed unknown for longer than the adapter's bound.

        """
        ...

    async def read(self, *, after: int, limit: int) -> list[Stored]:
        """Up to `limit` events following position `after`, contiguous, in order; empty at the end."""
        ...

    def tail(self, *, after: int) -> AsyncGenerator[list[Stored], None]:
        """All events following `after`, then new ones as they come, in batches, for ever."""
        ...

    async def last_under(self, subject: str, *, until: int | None = None) -> Stored | None:
        """The last event under a subject or wildcard, or None; `until`: of those up to that position."""
        ...

    async def identity(self) -> LogIdentity:
        """Whose log this is and how far it goes."""
        ...
