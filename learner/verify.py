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

from core.errors import CorruptEvent, ForeignLog, UnknownVersion
from events.catalogue.run import Fingerprint
from events.log import EventLog
from events.reader import read
from learner.claims import gather_claims
from learner.comparison import Divergence
from learner.damage import find_damage
from learner.trainer import MakeTrainer
from learner.training import Training
from learner.verifier import HEAVY, Verifier
from storage.blobs import BlobStore


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


async def verify(
    log: EventLog,
    blobs: BlobStore,
    *,
    policy: Path,
    code_rev: str = "",
    make_trainer: MakeTrainer = Training,
) -> VerifyReport:
    """Recompute the run as far as its log goes now. Best in a fresh process: threads are set once per process.

    `policy` is the folder the run's base weights belong to, `code_rev` the revision of the code that runs now.

    Raises:
        ForeignLog, UnknownVersion, BlobMissing, BlobCorrupt, ModelFileError: nothing can be said about this log here.

    """
    began, cpu_began = time.perf_counter(), time.process_time()
    end = (await log.identity()).last
    stop = Event()
    claims = await gather_claims(log, end)
    verifier = Verifier(
        blobs, policy=policy, code_rev=code_rev, claims=claims, stop=stop, make_trainer=make_trainer
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
    except (CorruptEvent, UnknownVersion, ForeignLog) as error:
        divergence = await find_damage(log, after=verifier.position, chains=verifier.chains, error=error)
        if divergence is None:
            raise
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


__all__ = ["Divergence", "VerifyReport", "verify"]
