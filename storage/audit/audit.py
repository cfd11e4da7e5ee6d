"""The audit itself: one pass over the log, each event through every check that concerns it, in a fixed order.

Consumes stored bytes through `EventLog.read`, which passes over gaps and judges nothing; blobs, in a thread beside it.
Waits for the log (its adapter's bound). Produces a report and nothing else: it appends nothing and writes nothing.
The next events are read while these are looked at. Memory: 20 bytes per event, about 450 per episode with its group, 150
per task, 400 per start of a process, and 8 MB of windows: some 90 MB for 1 000 000 events in 130 000 episodes.
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
from hindcast.storage.audit.witnesses import Witness
from hindcast.storage.blobs.store import BlobStore

READ_EVENTS = 1000
"""Events per request."""
SLICE_EVENTS = 100


class Ancestor(NamedTuple):
    """A log that goes on beyond the part of it that is audited."""

    log: EventLog
    forked_at: int
    """Last position of that part."""


class OpenWork(msgspec.Struct, frozen=True, kw_only=True):
    """What is under way where the log ends: no defect."""

    episodes: int
    """Requested, without an end."""
    verdicts: int
    """Ended, not judged."""
    minibatches: int
    """Planned, not reported."""


class AuditReport(msgspec.Struct, frozen=True, kw_only=True):
    """What an audit found."""

    run: str
    events: int
    chains: int
    """Incarnations of producers, each with a hash chain of its own."""
    defects: tuple[Defect, ...]
    """By position; of very many the first ones found."""
    defects_found: int
    first: int
    last: int
    digest: str
    """Rolling digest of the log up to `last`: keep it, and a later audit says whether the log still is this one."""
    first_digest: str
    """sha256 of the first event; empty where that is in an archive."""
    last_digest: str
    """sha256 of the last event."""
    episodes: int
    batches: int
    updates: int
    open: OpenWork
    unknown: dict[str, int]
    """Events of types or versions that this Hindcast does not know, by type: counted, their content unchecked."""
    archived_until: int
    """Positions up to here are not in this log but in an archive, as a segment.archived says. Audit that too."""
    blobs: int
    """Blobs that were there to be looked at."""
    blob_bytes: int
    blobs_released: int
    blobs_checked: Depth
    witnesses: tuple[str, ...]
    """Who outside the log was asked, with positions."""
    wall_s: float
    events_per_s: float

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
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
    """Look at every event of the log as far as it goes now, and at the blobs they name.

    `pages`: whether snapshots of pages are to be there; an archive may leave them out. `witnesses` must have been asked
    before, so that none has read on meanwhile. `ancestors`: the runs that this one was forked from, which may let go of
    blobs after the fork. `progressed` hears position and end.

    Raises:
        BrokerUnreachable: the log cannot be read; nothing can be said about it.

    """
    began = time.perf_counter()
    try:
        identity = await log.identity()
    except (CorruptEvent, ForeignLog) as error:
        # of a fork whose parent's log became shorter; of a damaged archive
        return unopened(log.run, error, witnesses=witnesses)
    fold = Fold(log.run, blobs, first=max(1, identity.first), depth=depth, pages=pages, witnesses=witnesses)
    batch = await _read(log, fold, after=fold.position, end=identity.last)
    while batch:
        named = fold.blobs.due()
        async with asyncio.TaskGroup() as group:
            following = group.create_task(_read(log, fold, after=batch[-1].position, end=identity.last))
            faults = group.create_task(asyncio.to_thread(fold.blobs.look, named))
            await _take(fold, batch)
        fold.blobs.note(named, faults.result())
        progressed(fold.position, identity.last)
        batch = following.result()
    rest = fold.blobs.due()
    fold.blobs.note(rest, await asyncio.to_thread(fold.blobs.look, rest))
    if fold.blobs.doubtful:
        for since in (Ancestor(log, identity.last), *ancestors):
            await _releases_since(since, fold)
    fold.finish(end=identity.last)
    return _report(fold, depth, witnesses, time.perf_counter() - began)


async def _take(fold: Fold, batch: Sequence[Stored]) -> None:
    """Between slices others have their turn: the next batch is on its way meanwhile."""
    for begin in range(0, len(batch), SLICE_EVENTS):
        for stored in batch[begin : begin + SLICE_EVENTS]:
            fold.take(stored)
        await asyncio.sleep(0)


async def _read(log: EventLog, fold: Fold, *, after: int, end: int) -> list[Stored]:
    """The next events up to `end`, whatever positions they have; none at the end."""
    if after >= end:
        return []
    found = await _attempt(log, fold, after=after, limit=READ_EVENTS)
    if not found:
        resumed = await _readable_again(log, fold, after=after, end=end)
        found = [] if resumed is None else await _attempt(log, fold, after=resumed, limit=READ_EVENTS)
    return [stored for stored in found if stored.position <= end]


async def _attempt(log: EventLog, fold: Fold, *, after: int, limit: int) -> list[Stored]:
    """What the log gives; nothing where it refuses, which is noted."""
    try:
        return await log.read(after=after, limit=limit)
    except BrokerUnreachable:
        raise
    except HindcastError as error:
        fold.refused = str(error)
        return []


async def _readable_again(log: EventLog, fold: Fold, *, after: int, end: int) -> int | None:
    """The position behind a hole after which the log gives events again: doubling steps, then halves of the last one."""
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
    """A run that goes on lets go of blobs while it is audited, or long after it was forked."""
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
    """The report on a log that does not even open, though there should be one."""
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
        defects=fold.findings.told(),
        defects_found=fold.findings.count,
        first=fold.first,
        last=fold.position,
        digest=fold.digests.value.hex(),
        first_digest=fold.first_digest.hex(),
        last_digest=fold.last_digest.hex(),
        episodes=fold.episodes.known,
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
