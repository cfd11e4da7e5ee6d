"""The audit: one pass over the log, each event through every check that concerns it, in a fixed order.

Consumes stored bytes through `EventLog.read`, which skips gaps and checks nothing; blobs are checked in another thread.
Waits for the log (its adapter's bound). Produces a report only: it appends nothing and writes nothing.
The next events are read while the current ones are checked. Memory: 20 bytes per event, about 450 per episode with its group,
150 per task, 400 per start of a process, and 8 MB of windows: some 90 MB for 1 000 000 events in 130 000 episodes.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from hindcast.core.errors import BrokerUnreachable, CorruptEvent, ForeignLog, HindcastError
from hindcast.events.envelope import Stored
from hindcast.events.log.port import EventLog
from hindcast.storage.audit.blobs import Depth
from hindcast.storage.audit.decoder import decode, digest_of
from hindcast.storage.audit.defects import LOST, Defect
from hindcast.storage.audit.fold import Fold
from hindcast.storage.audit.suspicions import Suspicion
from hindcast.storage.audit.witnesses import Witness
from hindcast.storage.blobs.store import BlobStore

READ_EVENTS = 1000
"""Events per request."""
SLICE_EVENTS = 100


class Ancestor(NamedTuple):
    """A log that continues after the part of it that is audited."""

    log: EventLog
    forked_at: int
    """Last position of that part."""


class OpenWork(msgspec.Struct, frozen=True, kw_only=True):
    """Unfinished work at the end of the log, which is no defect."""

    episodes: int
    """Episodes requested, without an end."""
    verdicts: int
    """Episodes ended, not judged."""
    minibatches: int
    """Mini-batches planned, not reported."""


class AuditReport(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an audit: defects, counts of what was checked, and digests to compare later."""

    run: str
    events: int
    chains: int
    """Incarnations of producers, each with its own hash chain."""
    defects: tuple[Defect, ...]
    """Defects by position; if there are very many, the first ones found."""
    defects_found: int
    suspicions: tuple[Suspicion, ...]
    """Probable faults of training, which are no defects of the log."""
    first: int
    last: int
    digest: str
    """Rolling digest of the log up to `last`: keep it, and a later audit can check that the log is still the same."""
    first_digest: str
    """sha256 of the first event; empty if that is in an archive."""
    last_digest: str
    """sha256 of the last event."""
    episodes: int
    batches: int
    updates: int
    open: OpenWork
    unknown: dict[str, int]
    """Events of types or versions that this Hindcast does not know, by type: counted, content unchecked."""
    archived_until: int
    """Positions up to here are in an archive, not in this log, as a segment.archived says. Audit that, too."""
    blobs: int
    """Blobs that existed and were checked."""
    blob_bytes: int
    blobs_released: int
    blobs_checked: Depth
    witnesses: tuple[str, ...]
    """Witnesses outside the log, with positions."""
    wall_s: float
    events_per_s: float

    @property
    def clean(self) -> bool:
        """Whether no defect was found."""
        return self.defects_found == 0


async def audit(
    log: EventLog,
    blobs: BlobStore,
    *,
    depth: Depth = "full",
    pages: bool = True,
    witnesses: Sequence[Witness] = (),
    ancestors: Sequence[Ancestor] = (),
    progressed: Callable[[int, int], None] = lambda _position, _last: None,
) -> AuditReport:
    """Check every event of the log up to its current end, and the blobs they name.

    `pages`: whether page snapshots are expected; an archive may omit them. `witnesses`: read before the audit starts, so
    that none is ahead of it. `ancestors`: the runs that this one was forked from, which may release blobs after the fork.
    `progressed` gets the position and the end.

    Raises:
        BrokerUnreachable: the log cannot be read.
    """
    began = time.perf_counter()
    try:
        identity = await log.identity()
    except (CorruptEvent, ForeignLog) as error:
        # a fork whose parent's log became shorter, or a damaged archive
        return unopened(log.run, error, witnesses=witnesses)
    fold = Fold(log.run, blobs, first=max(1, identity.first), depth=depth, pages=pages, witnesses=witnesses)
    batch = await _read_batch(log, fold, after=fold.position, end=identity.last)
    while batch:
        named_blobs = fold.blobs.take_due()
        async with asyncio.TaskGroup() as group:
            following = group.create_task(_read_batch(log, fold, after=batch[-1].position, end=identity.last))
            faults = group.create_task(asyncio.to_thread(fold.blobs.check_blobs, named_blobs))
            await _take(fold, batch)
        fold.blobs.note(named_blobs, faults.result())
        progressed(fold.position, identity.last)
        batch = following.result()
    last_blobs = fold.blobs.take_due()
    fold.blobs.note(last_blobs, await asyncio.to_thread(fold.blobs.check_blobs, last_blobs))
    if fold.blobs.doubtful:
        for ancestor in (Ancestor(log, identity.last), *ancestors):
            await _releases_since(ancestor, fold)
    fold.finish(end=identity.last)
    return _report(fold, depth, witnesses, time.perf_counter() - began)


async def _take(fold: Fold, batch: Sequence[Stored]) -> None:
    """Check a batch in slices, so that the next batch is read meanwhile."""
    for begin in range(0, len(batch), SLICE_EVENTS):
        for stored in batch[begin : begin + SLICE_EVENTS]:
            fold.take(stored)
        await asyncio.sleep(0)


async def _read_batch(log: EventLog, fold: Fold, *, after: int, end: int) -> list[Stored]:
    """The next events up to `end`, at any positions; empty at the end."""
    if after >= end:
        return []
    events = await _attempt(log, fold, after=after, limit=READ_EVENTS)
    if not events:
        resumed = await _first_readable(log, fold, after=after, end=end)
        events = [] if resumed is None else await _attempt(log, fold, after=resumed, limit=READ_EVENTS)
    return [stored for stored in events if stored.position <= end]


async def _attempt(log: EventLog, fold: Fold, *, after: int, limit: int) -> list[Stored]:
    """Read events; if the log refuses, record the reason and return none."""
    try:
        return await log.read(after=after, limit=limit)
    except BrokerUnreachable:
        raise
    except HindcastError as error:
        fold.refused = str(error)
        return []


async def _first_readable(log: EventLog, fold: Fold, *, after: int, end: int) -> int | None:
    """The first readable position after a hole: doubling steps, then bisection of the last one."""
    low, step = after, 1
    while True:
        high = min(low + step, end - 1)
        if high <= low:
            return None
        if await _attempt(log, fold, after=high, limit=1):
            break
        low, step = high, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        if await _attempt(log, fold, after=middle, limit=1):
            high = middle
        else:
            low = middle
    return high


async def _releases_since(since: Ancestor, fold: Fold) -> None:
    """Take in later releases of blobs: a run may release them during its audit, or long after a fork."""
    log, after = since.log, since.forked_at
    last = (await log.identity()).last
    while after < last and (batch := await log.read(after=after, limit=READ_EVENTS)):
        for stored in batch:
            event = decode(stored, digest_of(stored.data))
            if not isinstance(event, str) and event.type == "blob.released":
                fold.blobs.release_later(str(event.payload.get("blob", {}).get("sha256")))
        after = batch[-1].position


def unopened(
    run: str, error: HindcastError, *, witnesses: Sequence[Witness] = (), meaning: str = LOST
) -> AuditReport:
    """The report on a log that exists but cannot be opened."""
    fold = Fold(run, None, first=1, depth="none", pages=False, witnesses=())
    fold.findings.add(
        "position",
        1,
        "the log cannot be opened",
        until=max([1, *(witness.position for witness in witnesses)]),
        expected=f"the log of run {run}",
        found=str(error),
        meaning=meaning,
    )
    return _report(fold, "none", witnesses, 0.0)


def _report(fold: Fold, depth: Depth, witnesses: Sequence[Witness], wall_s: float) -> AuditReport:
    open_episodes, unjudged = fold.episodes.open_at_the_end()
    return AuditReport(
        run=fold.run,
        events=fold.events,
        chains=len(fold.chains),
        defects=fold.findings.defects(),
        defects_found=fold.findings.count,
        suspicions=fold.suspicions.report(),
        first=fold.first,
        last=fold.position,
        digest=fold.digests.value.hex(),
        first_digest=fold.first_digest.hex(),
        last_digest=fold.last_digest.hex(),
        episodes=fold.episodes.named_count,
        batches=fold.training.batches,
        updates=fold.training.updates,
        open=OpenWork(episodes=open_episodes, verdicts=unjudged, minibatches=fold.training.outstanding),
        unknown=dict(sorted(Counter(fold.unknown).items())),
        archived_until=fold.archived_until,
        blobs=fold.blobs.checked,
        blob_bytes=fold.blobs.bytes,
        blobs_released=fold.blobs.released,
        blobs_checked=depth,
        witnesses=tuple(f"{witness.name}, position {witness.position}" for witness in witnesses),
        wall_s=wall_s,
        events_per_s=fold.events / wall_s if wall_s else 0.0,
    )
