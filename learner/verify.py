"""Recompute a whole run from its log and say whether every number comes out the same.

Consumes the log once, in order, from the base weights that run.started names. Checks contiguity and hash chains of every
event; at each batch.planned makes the plan again from the fold at its `as_of`; recomputes each update and compares inputs,
loss, per-sample report and the digest of weights and optimiser state; hashes weights and checkpoints again.
Produces a report and nothing else. Invariant 9, no effects in replay: it appends nothing and writes no blob.

Not covered: whether a sampler would generate the same tokens again (a served model need not), and blobs of pages.
"""

import asyncio
import time
from contextlib import aclosing
from pathlib import Path
from threading import Event

import msgspec

from core.errors import CorruptEvent, ForeignLog, HindcastError
from events.catalogue import BatchPlanned
from events.catalogue.run import Fingerprint
from events.codec import decode, decode_envelope
from events.envelope import Stored
from events.log import EventLog
from events.reader import read
from learner.verifier import HEAVY, Divergence, Verifier
from storage.blobs import BlobStore

READ_EVENTS = 1000
"""Events per request when looking ahead for plans."""


class VerifyReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a verification found."""

    run: str
    events: int
    """Checked; up to the divergence if there is one."""
    updates: int
    """Recomputed and equal, skipped ones included."""
    weights: int
    """Published versions whose digest came out the same."""
    checkpoints: int
    identical: bool
    first_divergence: Divergence | None
    recorded_on: Fingerprint | None
    """Of the latest start of the run."""
    verified_on: Fingerprint | None
    wall_s: float
    cpu_s: float


async def verify(log: EventLog, blobs: BlobStore, *, policy: Path, code_rev: str = "") -> VerifyReport:
    """Recompute the run as far as its log goes now. Best in a fresh process: threads are set once per process.

    `policy` is the folder the run's base weights belong to, `code_rev` the revision of the code that runs now.

    Raises:
        ForeignLog, UnknownVersion, BlobMissing, BlobCorrupt, ModelFileError: nothing can be said about this log here.

    """
    began, cpu_began = time.perf_counter(), time.process_time()
    end = (await log.identity()).last
    stop = Event()
    verifier = Verifier(
        blobs, policy=policy, code_rev=code_rev, points=await _planning_points(log, end), stop=stop
    )
    divergence: Divergence | None = None
    try:
        async with aclosing(read(log, after=0, until=end, strict=True)) as recordeds:
            async for recorded in recordeds:
                if isinstance(recorded.fact, HEAVY):
                    divergence = await asyncio.to_thread(verifier.take, recorded)
                else:
                    divergence = verifier.take(recorded)
                if divergence is not None:
                    break
    except CorruptEvent as error:
        divergence = await _blame(log, verifier, error)
    finally:
        stop.set()
    if verifier.started is None and divergence is None:
        raise ForeignLog(f"the log of run {log.run} holds no run.started: there is nothing to verify")
    return VerifyReport(
        run=log.run,
        events=verifier.position,
        updates=verifier.updates,
        weights=verifier.weights,
        checkpoints=verifier.checkpoints,
        identical=divergence is None,
        first_divergence=divergence,
        recorded_on=verifier.then,
        verified_on=verifier.now,
        wall_s=time.perf_counter() - began,
        cpu_s=time.process_time() - cpu_began,
    )


async def _planning_points(log: EventLog, end: int) -> set[int]:
    """Positions that plans were made at. Damaged events are left to the reader that follows."""
    prefix = f"run.{log.run}.learner."
    points: set[int] = set()
    after = 0
    while after < end:
        stored = await log.read(after=after, limit=READ_EVENTS)
        if not stored:
            break
        for entry in stored:
            if entry.subject.startswith(prefix):
                try:
                    recorded = decode(entry, strict=False)
                except HindcastError:
                    continue
                if recorded is not None and isinstance(recorded.fact, BatchPlanned):
                    points.add(recorded.fact.as_of)
        after = stored[-1].position
    return points


async def _blame(log: EventLog, verifier: Verifier, error: CorruptEvent) -> Divergence:
    """Which event a broken chain speaks of: the one whose bytes changed, else the one that does not fit."""
    found = await log.read(after=verifier.position, limit=1)
    if not found:
        return _altered(verifier.position + 1, "", error)
    stored = found[0]
    if stored.position == verifier.position + 1:
        try:
            envelope = decode_envelope(stored)
        except HindcastError:
            return _altered(stored.position, _family(stored), error)
        last = verifier.chains.get(envelope.incarnation)
        if last is not None and envelope.producer_seq == last.seq + 1 and envelope.prev_hash != last.digest:
            return _altered(last.position, last.type, error)
        return _altered(stored.position, envelope.type, error)
    return _altered(verifier.position + 1, "", error)


def _family(stored: Stored) -> str:
    """A damaged event's type as far as its subject tells it."""
    return "step.taken" if ".step." in stored.subject else stored.subject.split(".")[2]


def _altered(position: int, event: str, error: CorruptEvent) -> Divergence:
    return Divergence(
        position=position,
        event=event,
        what="inputs" if event == "step.taken" else "chain",
        expected="the bytes that were appended",
        found=str(error),
        cause="Stored events were altered, lost or reordered after they were written.",
    )


__all__ = ["Divergence", "VerifyReport", "verify"]
