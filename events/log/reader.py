"""Checked reading of the log: `read` up to its end, `tail` forever, `skim` for one family without checks.

`read` and `tail` check that positions are contiguous, that every producer's hash chain holds, and that the log has the
expected identity. Events of unknown types are counted and skipped; a strict reader refuses them.

They follow a broker's log without message headers, so they do not compare an event's subject and id with those it is stored
under: no consumer uses those, and the chain covers the event's own. `skim`, and `decode` of events from `EventLog.read`, compare
the id; the audit compares both.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from hashlib import sha256

import msgspec

from hindcast.core.errors import CorruptEvent, ForeignLog, HindcastError
from hindcast.events.catalogue.run import RunForked
from hindcast.events.codec import decode, decode_envelope, decode_fact
from hindcast.events.envelope import Recorded, Stored
from hindcast.events.log.hash_chain import ChainChecker
from hindcast.events.log.port import EventLog, LogIdentity
from hindcast.events.subjects import family_of

SKIM_EVENTS = 1000
"""Events per request."""


class Bookmark(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer's position and the log's identity, stored with its effect and checked at its next start."""

    position: int
    """Position of the last applied event; 0 for none."""
    digest: bytes
    """sha256 of that event's stored bytes; empty at 0."""
    first_digest: bytes
    """sha256 of the log's first event; empty if unknown."""


async def check_log(log: EventLog, *, after: int, bookmark: Bookmark | None = None) -> LogIdentity:
    """Check that the log is still the one that was read up to `after`.

    Raises:
        ForeignLog: it is shorter, begins with another event, or has another event at the bookmark.

    """
    identity = await log.identity()
    if identity.last < after:
        raise ForeignLog(
            f"the log of run {log.run} ends at position {identity.last}, but it was read up to {after} before: it lost "
            "events or was replaced. Restore the broker's folder, or drop what was derived from it and start again."
        )
    if bookmark is None or bookmark.position == 0:
        return identity
    if bookmark.first_digest and bookmark.first_digest != identity.first_digest:
        raise ForeignLog(
            f"the log of run {log.run} begins with another event than the log read before "
            f"(sha256 {identity.first_digest.hex()[:16]}…, was {bookmark.first_digest.hex()[:16]}…): it is another log "
            "under the same name."
        )
    events = await log.read(after=bookmark.position - 1, limit=1)
    if not events or sha256(events[0].data).digest() != bookmark.digest:
        raise ForeignLog(
            f"the log of run {log.run} holds another event at position {bookmark.position} than when it was read before: "
            "it was swapped, or written anew after losing events."
        )
    return identity


class Checker:
    """Decodes stored events and checks contiguity, hash chains and the run's name."""

    def __init__(
        self,
        log: EventLog,
        *,
        after: int,
        strict: bool,
        check: bool,
        chains: ChainChecker | None = None,
    ) -> None:
        """`chains`: state of the hash chains at `after`; None: chains are checked from `after` on."""
        self._run = log.run
        self._lineage = log.lineage
        self._position = after
        self._strict = strict
        self._chains = (chains or ChainChecker(after=after)) if check else None

    def take(self, stored: Stored) -> Recorded | None:
        """Decode and check the next event; None if its type is unknown and the reader is not strict."""
        if stored.position != self._position + 1:
            raise CorruptEvent(
                f"events are missing: position {stored.position} follows {self._position} in the log of run {self._run}."
            )
        envelope = decode_envelope(stored)
        owner = self._owner(stored.position)
        if envelope.run != owner:
            raise ForeignLog(
                f"position {stored.position} belongs to run {envelope.run!r}, but this is the log of run {owner!r}: "
                "another run's events stand under this name."
            )
        digest = sha256(stored.data).digest()
        if self._chains is not None:
            self._chains.link(stored.position, envelope, digest)
        self._position = stored.position
        fact = decode_fact(stored, envelope, strict=self._strict)
        if fact is None:
            return None
        if self._lineage and isinstance(fact, RunForked):
            self._check_fork(stored.position, fact)
        return Recorded(stored.position, envelope, fact, digest)

    def _owner(self, position: int) -> str:
        """Return the run to which an event at this position must belong."""
        for ancestor in self._lineage:
            if position <= ancestor.until:
                return ancestor.run
        return self._run

    def _check_fork(self, position: int, fact: RunForked) -> None:
        if fact.at_position != position - 1 or fact.parent != self._owner(position - 1):
            raise ForeignLog(
                f"run.forked at position {position} names run {fact.parent!r} up to position {fact.at_position}, but what "
                f"stands before it is read from run {self._owner(position - 1)!r}: the fork is joined to another log."
            )


async def read(
    log: EventLog,
    *,
    after: int = 0,
    until: int | None = None,
    strict: bool = True,
    check: bool = True,
    bookmark: Bookmark | None = None,
    chains: ChainChecker | None = None,
) -> AsyncGenerator[Recorded, None]:
    """Yield the events following `after` up to the log's current end, or `until`. `chains`: see `Checker`.

    Raises:
        CorruptEvent, UnknownVersion, ForeignLog: the log cannot be trusted or decoded; the message names the position.

    """
    identity = await check_log(log, after=after, bookmark=bookmark)
    end = identity.last if until is None else min(until, identity.last)
    if end <= after:
        return
    checker = Checker(log, after=after, strict=strict, check=check, chains=chains)
    async with aclosing(log.tail(after=after, headers=False)) as batches:
        async for batch in batches:
            for stored in batch:
                recorded = checker.take(stored)
                if recorded is not None:
                    yield recorded
                if stored.position >= end:
                    return


async def skim(log: EventLog, *, family: str, until: int) -> AsyncGenerator[Recorded, None]:
    """Yield the events of one family up to a position, unchecked: damaged and unknown events are skipped."""
    after = 0
    while after < until:
        batch = await log.read(after=after, limit=SKIM_EVENTS)
        if not batch:
            return
        for stored in batch:
            if stored.position <= until and family_of(stored.subject) == family:
                try:
                    recorded = decode(stored, strict=False)
                except HindcastError:
                    continue
                if recorded is not None:
                    yield recorded
        after = batch[-1].position


async def tail_batches(
    log: EventLog,
    *,
    after: int,
    strict: bool = False,
    bookmark: Bookmark | None = None,
    chains: ChainChecker | None = None,
) -> AsyncGenerator[tuple[list[Recorded], int], None]:
    """Yield like `tail`, but by batch: its events, and its last position, including skipped events."""
    await check_log(log, after=after, bookmark=bookmark)
    checker = Checker(log, after=after, strict=strict, check=True, chains=chains)
    async with aclosing(log.tail(after=after, headers=False)) as batches:
        async for batch in batches:
            events = [recorded for recorded in map(checker.take, batch) if recorded is not None]
            yield events, batch[-1].position


async def tail(log: EventLog, *, after: int) -> AsyncGenerator[Recorded, None]:
    """Yield the events following `after`, then new ones as they come, forever; events of unknown types are skipped."""
    async with aclosing(tail_batches(log, after=after)) as batches:
        async for events, _ in batches:
            for recorded in events:
                yield recorded
