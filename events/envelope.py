"""The envelope round every fact, and a fact as it stands in the log.

Encoded as plain MessagePack maps, so that any `msgpack` reader in any language decodes them. Nothing here can refer to
itself, so the garbage collector is spared looking at hundreds of thousands of them.
"""

from typing import Any

import msgspec


class BlobRef(msgspec.Struct, frozen=True, gc=False):
    """Content kept beside the log, named by its digest."""

    sha256: str
    size: int
    """Bytes."""


class Fact(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Base of every payload. Subclasses are declared with `events.registry.fact`."""


class Envelope(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Who recorded what about which entity, linked to that producer's previous event."""

    id: str
    """UUIDv7 by the producer; also the `Nats-Msg-Id`."""
    type: str
    """Stable snake name such as `step.taken`, never an import path."""
    version: int
    """Schema version of the payload."""
    run: str
    entity: str
    """Identifier of what the fact is about: an episode, a batch, a task, a policy version."""
    ordinal: int
    """Position of the fact within its entity, for instance the step's index."""
    causation: str | None
    """Id of the event that led to this one."""
    correlation: str | None
    """What ties a chain of events together: the episode or the batch."""
    producer: str
    """Role and number: `actor.1`, `learner.1`."""
    incarnation: str
    """One start of that producer; its hash chain begins with it."""
    producer_seq: int
    """0, 1, 2 … within the incarnation."""
    prev_hash: bytes
    """sha256 of the stored bytes of this incarnation's previous event; empty for the first."""
    occurred_ns: int
    """Wall clock in ns since 1970. An annotation only: order is the position."""
    policy_version: int | None
    code_rev: str
    payload: msgspec.Raw
    """The fact, encoded; decoded only once type and version are known."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """Encoded bytes ready to append."""

    subject: str
    data: bytes
    id: str
    traceparent: str = ""
    """W3C trace context that the event was recorded in; a header beside the event, never part of its bytes."""


class Stored(msgspec.Struct, frozen=True, gc=False):
    """Bytes as the log holds them."""

    position: int
    """Sequence in the log, from 1."""
    subject: str
    data: bytes
    id: str
    traceparent: str = ""
    """As recorded, where it was read one by one or from a work queue; following a log leaves it out."""


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """A fact read back and checked."""

    position: int
    envelope: Envelope
    fact: Fact
    digest: bytes
    """sha256 of the stored bytes."""

    def describe(self) -> dict[str, Any]:
        """Plain values for people and JSON: envelope and payload, bytes as their length."""
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
