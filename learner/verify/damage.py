"""Locates the damaged event in a log that cannot be read further."""

from collections.abc import Mapping, Sequence
from hashlib import sha256

import msgspec

from hindcast.core.errors import CorruptEvent, HindcastError
from hindcast.events.codec import decode_envelope
from hindcast.events.envelope import Envelope, Stored
from hindcast.events.log.port import EventLog
from hindcast.learner.verify.diagnosis import Divergence

LOOK_AHEAD_EVENTS = 500
"""Events to search for the successor of an event in its hash chain."""


class ChainEnd(msgspec.Struct, frozen=True):
    """The last event of one producer incarnation so far."""

    seq: int
    digest: bytes
    position: int
    type: str


async def find_damage(
    log: EventLog, *, after: int, chains: Mapping[str, ChainEnd], error: HindcastError
) -> Divergence | None:
    """Diagnose the event after position `after`, at which reading failed with `error`.

    If an event does not name the bytes of its predecessor, one of the two was altered: the predecessor, if the event's own
    successor still confirms the event. None: the event is intact, but belongs to another run or a newer Hindcast.
    """
    found = await log.read(after=after, limit=LOOK_AHEAD_EVENTS)
    if not found or found[0].position != after + 1:
        return _divergence(after + 1, "", error, altered=False)
    stored = found[0]
    try:
        envelope = decode_envelope(stored)
    except HindcastError:
        family = stored.subject.split(".")[2]
        return _divergence(stored.position, "step.taken" if family == "step" else family, error, altered=True)
    last = chains.get(envelope.incarnation)
    if _is_disowned(stored, envelope, found[1:]):
        return _divergence(stored.position, envelope.type, error, altered=True)
    seq, digest = (last.seq, last.digest) if last is not None else (-1, b"")
    if last is not None and envelope.producer_seq == seq + 1 and envelope.prev_hash != digest:
        return _divergence(last.position, last.type, error, altered=True)
    if not isinstance(error, CorruptEvent) and (envelope.producer_seq, envelope.prev_hash) == (
        seq + 1,
        digest,
    ):
        return None
    return _divergence(stored.position, envelope.type, error, altered=False)


def _is_disowned(stored: Stored, envelope: Envelope, following: Sequence[Stored]) -> bool:
    """Whether the producer's next event names other bytes; False if none is near."""
    for later in following:
        try:
            successor = decode_envelope(later)
        except HindcastError:
            continue
        if (successor.incarnation, successor.producer_seq) == (
            envelope.incarnation,
            envelope.producer_seq + 1,
        ):
            return successor.prev_hash != sha256(stored.data).digest()
    return False


def _divergence(position: int, event: str, error: HindcastError, *, altered: bool) -> Divergence:
    return Divergence(
        position=position,
        event=event,
        what="inputs" if altered and event == "step.taken" else "chain",
        expected="the bytes that were appended, in their order",
        found=str(error),
        cause="Stored events were altered, lost or reordered after they were written.",
    )
