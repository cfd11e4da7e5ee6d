"""A log as a broken disk or a forger would leave it: bytes changed, events gone or moved, chains mended or not."""

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

import msgpack

from hindcast.events.envelope import Fact, Stored
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.publisher import Publisher
from hindcast.storage.audit.audit import AuditReport, audit
from hindcast.storage.audit.blobs import Depth
from hindcast.storage.audit.witnesses import Witness
from stories.training_story import QUICK, Bench

Change = Callable[[dict[str, Any]], None]
"""Changes an event's values: envelope, with the payload in it."""


def put(log: MemoryLog, position: int, data: bytes) -> None:
    """Other bytes at a position."""
    old = log.events[position - 1]
    log.events[position - 1] = Stored(position, old.subject, data, old.id)


def renumber(log: MemoryLog, events: Sequence[Stored]) -> None:
    """These events in this order, at positions from 1."""
    log.events[:] = [
        Stored(position, stored.subject, stored.data, stored.id) for position, stored in enumerate(events, 1)
    ]


def values(stored: Stored) -> dict[str, Any]:
    """What an event's bytes say."""
    found: dict[str, Any] = msgpack.unpackb(stored.data)
    return found


def positions(log: MemoryLog, kind: str) -> list[int]:
    """Where events of a type stand."""
    return [stored.position for stored in log.events if values(stored)["type"] == kind]


def forge(log: MemoryLog, position: int, change: Change) -> None:
    """Change an event, and mend every chain and every digest after it: only what it says can show it."""
    ends: dict[str, bytes] = {}
    digests: dict[int, bytes] = {}
    rolling: dict[int, bytes] = {0: bytes(32)}
    for stored in list(log.events):
        event = values(stored)
        if stored.position == position:
            change(event)
        event["prev_hash"] = ends.get(event["incarnation"], b"")
        if event["type"] == "batch.planned":
            mend_plan(event["payload"], digests, rolling)
        data = msgpack.packb(event)
        digest = sha256(data).digest()
        ends[event["incarnation"]] = digests[stored.position] = digest
        rolling[stored.position] = sha256(rolling[stored.position - 1] + digest).digest()
        put(log, stored.position, data)


def mend_plan(plan: dict[str, Any], digests: dict[int, bytes], rolling: dict[int, bytes]) -> None:
    """A plan's digests as they have to be now."""
    plan["log_digest"] = rolling.get(plan["as_of"], plan["log_digest"])
    packed = plan["positions"]
    named = [int.from_bytes(packed[at : at + 8], "little") for at in range(0, len(packed), 8)]
    if all(position in digests for position in named):
        plan["sample_digests"] = b"".join(digests[position][:8] for position in named)


async def add(log: MemoryLog, fact: Fact, *, producer: str, entity: str, **envelope: Any) -> int:
    """Append a fact, whether or not it may be; returns its position."""
    async with Publisher(log, producer=producer, code_rev="test", settings=QUICK) as publisher:
        await publisher.publish(fact, entity=entity, **envelope)
        return await publisher.commit()


async def audited(
    made: Bench, *, depth: Depth = "none", witnesses: Sequence[Witness] = (), log: MemoryLog | None = None
) -> AuditReport:
    """An audit of a bench's log."""
    return await audit(log or made.log, made.blobs, depth=depth, witnesses=witnesses)


def witness_of(report: AuditReport, name: str = "the last audit") -> Witness:
    """What an audit leaves for the next."""
    return Witness(
        name=name,
        position=report.last,
        digest=bytes.fromhex(report.last_digest),
        rolling=bytes.fromhex(report.digest),
        first_digest=bytes.fromhex(report.first_digest),
    )
