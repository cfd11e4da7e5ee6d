"""Copies events of one run into the log of another, in their order.

A copied event keeps its payload, entity, producer, times and versions. It gets an id and a place in a hash chain of its own: a
chain holds every event of its producer, so the copies of one incarnation are a chain under a new name. Causes that were copied
keep pointing at their copies.
"""

import secrets
from collections.abc import Iterable
from hashlib import sha256

import msgspec

from hindcast.core.ids import uuid7
from hindcast.events.codec import encode, encode_fact
from hindcast.events.envelope import Envelope, Fact, Record, Recorded
from hindcast.events.log.port import EventLog
from hindcast.events.registry import BY_CLASS
from hindcast.events.subjects import subject_of

BATCH_EVENTS = 200
BATCH_BYTES = 512 * 1024


class EventCopier:
    """Writes copies to a log that nobody else writes to meanwhile. Needs the role `importer`."""

    def __init__(self, log: EventLog, *, code_rev: str) -> None:
        self.positions: dict[int, int] = {}
        """Position of an event in the other log -> of its copy, once appended."""
        self._log = log
        self._code_rev = code_rev
        self._ids: dict[str, str] = {}
        self._chains: dict[str, tuple[str, int, bytes]] = {}
        """Incarnation in the other log -> its name here, next number and latest hash."""
        self._waiting: list[Record] = []
        self._origins: list[int] = []
        self._bytes = 0

    async def copy(self, recorded: Recorded) -> None:
        """Add a copy; it is appended with the next full batch, or by `commit`."""
        then, fact = recorded.envelope, recorded.fact
        name, seq, before = self._chains.get(then.incarnation) or (
            f"{then.producer}.{secrets.token_hex(4)}",
            0,
            b"",
        )
        entry = BY_CLASS[type(fact)]
        envelope = msgspec.structs.replace(
            then,
            id=uuid7(then.occurred_ns // 1_000_000, secrets.token_bytes(10)),
            version=entry.version,
            run=self._log.run,
            causation=self._ids.get(then.causation or "", then.causation),
            incarnation=name,
            producer_seq=seq,
            prev_hash=before,
            code_rev=self._code_rev,
            payload=encode_fact(fact),
        )
        content = encode(envelope)
        self._chains[then.incarnation] = name, seq + 1, sha256(content).digest()
        self._ids[then.id] = envelope.id
        self._waiting.append(Record(_subject(self._log.run, fact, envelope), content, envelope.id))
        self._origins.append(recorded.position)
        self._bytes += len(content)
        if len(self._waiting) >= BATCH_EVENTS or self._bytes >= BATCH_BYTES:
            await self.commit()

    async def commit(self) -> int:
        """Append what waits; returns the position of the last copy, 0 if none waited."""
        if not self._waiting:
            return 0
        positions = await self._log.append(self._waiting)
        self.positions |= zip(self._origins, positions, strict=True)
        self._waiting, self._origins, self._bytes = [], [], 0
        return positions[-1]

    def places(self, positions: Iterable[int]) -> list[int]:
        """Positions of the copies of events; an event that both logs share keeps its position."""
        return [self.positions.get(position, position) for position in positions]


def _subject(run: str, fact: Fact, envelope: Envelope) -> str:
    key = envelope.entity if BY_CLASS[type(fact)].subject.per_entity else envelope.incarnation
    return subject_of(run, fact, key=key)
