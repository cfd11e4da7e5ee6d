"""Applies an attached consumer as an `events.log.consumer.Effect`: its writes and its position in one transaction.

Events are applied one by one in a separate thread, so that a blocked consumer does not block the broker connection. A
transaction ends after at most `COMMIT_S`, so that a slow consumer's work is not repeated.
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
"""Time after which a transaction takes no further event."""

T = TypeVar("T")


class Refused(Exception):
    """The consumer's own code raised a HindcastError: the event failed, not the system."""


class AttachedEffect:
    """Applies events and stores the position. Implements `events.log.consumer.Effect` and `Bookmarked`; call `open` first."""

    def __init__(
        self, attached: Attached, store: ConsumerStore, *, new: ConsumerPosition, thread: Executor
    ) -> None:
        """`new`: first position of a consumer that the store does not know."""
        self.standing = new
        self.taken = 0
        """Events applied by this process."""
        self.working_on: tuple[int, float] | None = None
        """Position of the event that is being applied, and since when (unix seconds)."""
        self.stopping = False
        """True: apply no further event. Finished work is kept."""
        self._attached = attached
        self._store = store
        self._thread = thread
        self._stale = False

    async def open(self) -> bool:
        """Find or create the consumer's row in the store; returns whether it existed."""
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
        """Position of the last applied event."""
        return self.standing.position

    async def bookmark(self) -> Bookmark | None:
        """Identify the log that the consumer has read."""
        return self.standing.bookmark

    async def apply(self, recordeds: Sequence[Recorded], position: int) -> None:
        """Apply events after the position and move the position, in transactions of at most `COMMIT_S`."""
        waiting = [recorded for recorded in recordeds if recorded.position > self.standing.position]
        while waiting or position > self.standing.position:
            done = await self._blocking(partial(self._apply_some, waiting, position))
            waiting = waiting[done:]

    def _apply_some(self, recordeds: Sequence[Recorded], position: int) -> int:
        """Run one transaction; returns the number of its events. Raises the error of its first event."""
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
        """Apply one event. Wraps a HindcastError of the consumer's code, which the caller would take for a failure of the
        system."""
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
    """An effect that may skip events (`events.log.consumer.LiveEffect`) and stores the skipped ones in the consumer's store."""

    async def set_aside(self, recorded: Recorded, error: str) -> None:
        """Record that an event was skipped, and move past it."""
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
        """Entities that are held back by skipped events."""
        return await self._blocking(self._held_back)

    def _held_back(self) -> set[str]:
        with self._store.asking() as db:
            return held_back(db, self.standing.run, self.standing.name)
