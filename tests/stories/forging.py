"""Logs in memory that are altered after they were written, as a broken disk or a tamperer would."""

from collections.abc import Callable
from hashlib import sha256
from typing import Any, cast

import msgspec

from hindcast.events.catalogue import BatchPlanned
from hindcast.events.codec import decode_envelope, decode_fact, encode, encode_fact
from hindcast.events.envelope import Fact, Recorded, Stored
from hindcast.events.log.hash_chain import RollingDigest
from hindcast.events.log.memory import MemoryLog
from stories.training_story import Bench, events_of


async def all_of(made: Bench, kind: type[Fact]) -> list[Recorded]:
    """Every fact of a kind, in order."""
    return [recorded for recorded in await events_of(made.log) if isinstance(recorded.fact, kind)]


def put(log: MemoryLog, position: int, data: bytes) -> None:
    """Replace stored bytes."""
    old = log.events[position - 1]
    log.events[position - 1] = Stored(position, old.subject, data, old.id)


def forge(log: MemoryLog, position: int, change: Callable[[Any], Fact], *, digests: bool = False) -> None:
    """Replace a fact and mend every chain after it; with `digests` also the rolling digests that plans recorded."""
    ends: dict[str, bytes] = {}
    rolling, at = RollingDigest(), {}
    for stored in list(log.events):
        envelope = decode_envelope(stored)
        fact = cast(Fact, decode_fact(stored, envelope))
        if stored.position == position:
            fact = change(fact)
        if digests and isinstance(fact, BatchPlanned):
            fact = msgspec.structs.replace(fact, log_digest=at[fact.as_of])
        data = encode(
            msgspec.structs.replace(
                envelope, payload=encode_fact(fact), prev_hash=ends.get(envelope.incarnation, b"")
            )
        )
        if stored.position < position:
            assert data == stored.data
        ends[envelope.incarnation] = sha256(data).digest()
        at[stored.position] = rolling.advance(ends[envelope.incarnation])
        put(log, stored.position, data)


def with_field(**changes: Any) -> Callable[[Any], Fact]:
    """A change of these fields."""
    return lambda fact: msgspec.structs.replace(fact, **changes)
