"""Brings a read model up to the end of its log: at the projector's start, and for a rebuild."""

import asyncio
from contextlib import aclosing

from hindcast.events.envelope import Recorded
from hindcast.events.log.port import EventLog
from hindcast.events.log.reader import Bookmark, read
from hindcast.storage.readmodel.database import ReadModel
from hindcast.storage.readmodel.fold import Cursor, Span, apply, read_cursor

BATCH_EVENTS = 1000
"""Events folded in one transaction: more are no faster."""


def bookmark_of(standing: Cursor | None) -> Bookmark | None:
    """Identity of the log that was read, and how far, so that another log under its name is refused."""
    if standing is None or standing.last_position == 0:
        return None
    return Bookmark(
        position=standing.last_position,
        digest=bytes.fromhex(standing.last_digest),
        first_digest=bytes.fromhex(standing.first_digest),
    )


def cursor_of(model: ReadModel) -> Cursor | None:
    """The cursor of a prepared read model."""
    with model.writing() as connection:
        return read_cursor(connection)


async def fill(
    log: EventLog,
    model: ReadModel,
    *,
    until: int | None = None,
    strict: bool = True,
    batch_events: int = BATCH_EVENTS,
) -> int:
    """Fold the events after the read model's position up to the log's end, or `until`; returns the number of events.

    `strict`: refuse events of types that this version does not know, instead of skipping them.

    Raises:
        ForeignLog: it is not the log that was folded before.
        CorruptEvent, UnknownVersion: the log cannot be folded; the message names the position.
    """
    standing = await asyncio.to_thread(cursor_of, model)
    try:
        async with asyncio.TaskGroup() as group:
            after = standing.position if standing else 0
            filler = _Filler(model, group, after=after, strict=strict)
            batch: list[Recorded] = []
            reading = read(log, after=after, until=until, strict=strict, bookmark=bookmark_of(standing))
            async with aclosing(reading):
                async for recorded in reading:
                    batch.append(recorded)
                    if len(batch) == batch_events:
                        await filler.write(batch)
                        batch = []
            await filler.write(batch)
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return filler.events


class _Filler:
    """Writes one batch while the next is read."""

    def __init__(self, model: ReadModel, group: asyncio.TaskGroup, *, after: int, strict: bool) -> None:
        self.events = 0
        self._model = model
        self._group = group
        self._after = after
        self._strict = strict
        self._writing: asyncio.Task[None] | None = None

    async def write(self, batch: list[Recorded]) -> None:
        """Start to write a batch once the previous one is written."""
        if self._writing is not None:
            await self._writing
        if batch:
            self.events += len(batch)
            self._writing = self._group.create_task(asyncio.to_thread(self._apply, batch))

    def _apply(self, batch: list[Recorded]) -> None:
        reached = batch[-1].position
        with self._model.writing() as connection:
            apply(connection, batch, span=None if self._strict else Span(after=self._after, reached=reached))
        self._after = reached
