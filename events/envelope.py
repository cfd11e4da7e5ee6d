"""The envelope of every fact, and events as stored and as read back.

Encoded as plain MessagePack maps, which any `msgpack` reader in any language decodes. These types cannot form reference
cycles, so the garbage collector does not track them.
"""

from typing import Any

import msgspec


class BlobRef(msgspec.Struct, frozen=True, gc=False):
    """Reference to a blob: content stored outside the log under its digest."""

    sha256: str
    size: int
    """Size in bytes."""


class Fact(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Base of every payload. Subclasses are declared with `events.registry.fact`."""


class Envelope(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Metadata and payload of an event, linked to the producer's previous event by hash."""

    id: str
    """UUIDv7 by the producer; also the `Nats-Msg-Id`."""
    type: str
    """Stable snake name such as `step.taken`, never an import path."""
    version: int
    """Schema version of the payload."""
    run: str
    entity: str
    """Identifier of the fact's subject: an episode, a batch, a task, a policy version."""
    ordinal: int
    """Index of the fact within its entity, such as the step's index."""
    causation: str | None
    """Id of the event that caused this one."""
    correlation: str | None
    """Id that connects a chain of events: the episode or the batch."""
    producer: str
    """Role and number: `actor.1`, `learner.1`."""
    incarnation: str
    """One start of that producer; each has its own hash chain."""
    producer_seq: int
    """0, 1, 2 … within the incarnation."""
    prev_hash: bytes
    """sha256 of the stored bytes of this incarnation's previous event; empty for the first."""
    occurred_ns: int
    """Wall clock in ns since 1970. Only an annotation: positions define the order."""
    policy_version: int | None
    code_rev: str
    """Revision of the code that recorded the event."""
    payload: msgspec.Raw
    """The encoded fact, decoded only once type and version are known."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """An encoded event, ready to append."""

    subject: str
    data: bytes
    id: str
    traceparent: str = ""
    """W3C trace context in which the event was recorded; a message header, never part of the event's bytes."""


UNREAD = "not read"
"""Subject and id of an event that was read without its headers; compared by identity, so that no header can forge it."""


class Stored(msgspec.Struct, frozen=True, gc=False):
    """An event as the log stores it, not decoded."""

    position: int
    """Sequence in the log, from 1."""
    subject: str
    data: bytes
    id: str
    traceparent: str = ""
    """Trace context as recorded; empty if read from an archive, which does not store it."""


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """An event read back, decoded and checked."""

    position: int
    envelope: Envelope
    fact: Fact
    digest: bytes
    """sha256 of the stored bytes."""

    def describe(self) -> dict[str, Any]:
        """Convert envelope and payload to plain values for people and JSON; bytes become their length."""
        plain = {
            name: getattr(self.envelope, name)
            for name in self.envelope.__struct_fields__
            if name != "payload"
        }
        plain["prev_hash"] = self.envelope.prev_hash.hex()
        payload = {
            key: f"<{len(value)} bytes>" if isinstance(value, bytes) else value
            for key, value in msgspec.to_builtins(self.fact, builtin_types=(bytes,)).items()
        }
        return {"position": self.position, **plain, "payload": payload}
