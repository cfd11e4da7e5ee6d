"""An attached consumer as the effect of `events.log.consumer.consume`: its writes and its position in one transaction.

Events are applied one by one in one thread of their own, so that a consumer may block without holding up the connection
to the broker. A transaction ends after `COMMIT_S` at the latest: what a slow consumer has done is not done again.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import TypeVar

import msgspec
from sqlalchemy import Connection

from hindcast.app.attach.store import (
    ConsumerPosition,
    ConsumerStore,
    DeadLetter,
    begin_standing,
    find_standing,
    held_back,
    move,
    set_aside,
)
from hindcast.app.attach.target import Attached
from hindcast.core.errors import HindcastError
from hindcast.events.envelope import Recorded
from hindcast.events.log.consumer import key_of
from hindcast.events.log.reader import Bookmark

COMMIT_S = 1.0
"""No transaction takes in another event after this long."""

T = TypeVar("T")


class Refused(Exception):
    """The consumer's own code raised one of our errors. What it says is about the event, not about the system."""


class AttachedEffect:
    """The effect (`events.log.consumer.Effect`, `Bookmarked`). `open` first."""

    def __init__(
        self, attached: Attached, store: ConsumerStore, *, new: ConsumerPosition, thread: Executor
    ) -> None:
        """`new`: where the consumer begins when the store does not know it."""
        self.standing = new
        self.taken = 0
        """Events taken in by this process."""
        self.working_on: tuple[int, float] | None = None
        """Position of the event that is being taken in, and since when (unix seconds)."""
        self.stopping = False
        """Set to take in no further event; what is done is kept."""
        self._attached = attached
        self._store = store
        self._thread = thread
        self._stale = False

    async def open(self) -> bool:
        """Find or make the consumer's place in the store; whether it was there before."""
        return await self._blocking(self._open)

    def _open(self) -> bool:
        self._store.prepare()
        with self._store.writing() as db:
            self._attached.prepare(db)
            found = find_standing(db, self.standing.run, self.standing.name)
            if found is None:
                self.standing = msgspec.structs.replace(self.standing, state=self._attached.snapshot())
                begin_standing(db, self.standing)
            else:
                self.standing = msgspec.structs.replace(
                    found, target=self.standing.target, host=self.standing.host
                )
                self._attached.restore(found.state)
        return found is not None

    async def position(self) -> int:
        """How far it came."""
        return self.standing.position

    async def bookmark(self) -> Bookmark | None:
        """Which log it has read."""
        return self.standing.bookmark

    async def apply(self, recordeds: Sequence[Recorded], position: int) -> None:
        """Take in the events that follow the position, and move it; kept in transactions of `COMMIT_S` at most."""
        waiting = [recorded for recorded in recordeds if recorded.position > self.standing.position]
        while waiting or position > self.standing.position:
            done = await self._blocking(partial(self._apply_some, waiting, position))
            waiting = waiting[done:]

    def _apply_some(self, recordeds: Sequence[Recorded], position: int) -> int:
        """One transaction; how many of the events are in it. Raises what the first of them raises."""
        if self._stale:
            self._attached.restore(self.standing.state)
            self._stale = False
        done = 0
        refused = False
        began = time.monotonic()
        try:
            with self._store.writing() as db:
                for recorded in recordeds:
                    if self.stopping or (done and time.monotonic() - began > COMMIT_S):
                        break
                    self.working_on = (recorded.position, time.time())
                    refused = True
                    self._take(recorded, db)
                    refused = False
                    done += 1
                after = self._moved(recordeds[:done], position if done == len(recordeds) else 0)
                move(db, self.standing, after)
        except Exception:
            self._stale = True
            if not (refused and done):
                raise
            return self._apply_some(recordeds[:done], recordeds[done - 1].position)
        finally:
            self.working_on = None
        self.standing = after
        self.taken += done
        return done

    def _take(self, recorded: Recorded, db: Connection) -> None:
        """To whoever runs us a HindcastError means that nothing works now: one that the consumer raises must not pass
        for it."""
        try:
            self._attached.take(recorded, db)
        except HindcastError as error:
            raise Refused(f"{type(error).__name__}: {error}") from error

    def _moved(self, taken: Sequence[Recorded], position: int) -> ConsumerPosition:
        after = self.standing
        if taken:
            last = taken[-1]
            after = msgspec.structs.replace(
                after,
                last_position=last.position,
                last_digest=last.digest,
                first_digest=taken[0].digest if taken[0].position == 1 else after.first_digest,
                state=self._attached.snapshot(),
            )
        return msgspec.structs.replace(after, position=max(position, after.last_position, after.position))

    async def _blocking(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


class LiveAttachedEffect(AttachedEffect):
    """The same for a consumer that may go on without an event (`events.log.consumer.LiveEffect`); skips are kept locally."""

    async def set_aside(self, recorded: Recorded, error: str) -> None:
        """Remember that this event was not applied, and move on."""
        await self._blocking(partial(self._set_aside, recorded, error))

    def _set_aside(self, recorded: Recorded, error: str) -> None:
        letter = DeadLetter(
            position=recorded.position, type=recorded.envelope.type, held=key_of(recorded), error=error
        )
        if self._stale:
            self._attached.restore(self.standing.state)
            self._stale = False
        with self._store.asking() as db:
            after = self._moved([recorded], recorded.position)
            set_aside(db, self.standing.run, self.standing.name, letter)
            move(db, self.standing, after)
        self.standing = after

    async def held_back(self) -> set[str]:
        """What the events set aside so far hold back."""
        return await self._blocking(self._held_back)

    def _held_back(self) -> set[str]:
        with self._store.asking() as db:
            return held_back(db, self.standing.run, self.standing.name)
