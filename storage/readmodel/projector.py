"""The projector: keeps the SQL read model up to date with the log. Invariant 1, log is the truth.

Consumes the whole log from its own position on. Waits for the log (its adapter's bound) and for a database that does not
answer or has no room (`storage.database_wait_s`), with one warning. Produces rows and, in the same transaction, the position:
after a crash of the projector or its database, it continues where the last transaction ended.
Nothing waits for it: a run does not notice whether it works.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing

import structlog
from sqlalchemy import Connection

from hindcast.core.settings.schema import StorageSettings
from hindcast.events.envelope import Recorded
from hindcast.events.log.consumer import consume
from hindcast.events.log.port import EventLog
from hindcast.events.log.reader import Bookmark, read
from hindcast.storage.readmodel.database import DatabaseAway, ReadModel, ReadModelUnavailable
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


NAME = "projector"


RETRY_S = 1.0
"""Seconds between attempts to reach a database that does not answer."""


_log = structlog.get_logger(__name__)


class ReadModelEffect:
    """The read model as the effect of a consumer (`events.log.consumer.Effect`, `Bookmarked`)."""

    def __init__(self, model: ReadModel) -> None:
        self._model = model
        self._position = 0
        self._unsure = False
        """Whether the last transaction may have been committed without the database's confirmation."""

    async def position(self) -> int:
        """Position of the read model."""
        standing = await asyncio.to_thread(cursor_of, self._model)
        self._position = standing.position if standing else 0
        return self._position

    async def bookmark(self) -> Bookmark | None:
        """Identity of the log that it has read."""
        return bookmark_of(await asyncio.to_thread(cursor_of, self._model))

    async def apply(self, recordeds: Sequence[Recorded], position: int) -> None:
        """Fold the events and move the position, in one transaction."""
        await asyncio.to_thread(self._apply, recordeds, position)

    def _apply(self, recordeds: Sequence[Recorded], position: int) -> None:
        try:
            with self._model.writing() as connection:
                if not (self._unsure and _holds(connection, recordeds, position)):
                    apply(connection, recordeds, span=Span(after=self._position, reached=position))
        except DatabaseAway:
            self._unsure = True
            raise
        self._unsure = False
        self._position = position


def _holds(connection: Connection, recordeds: Sequence[Recorded], position: int) -> bool:
    """Whether exactly this batch was the last one folded."""
    standing = read_cursor(connection)
    if standing is None or standing.position != position:
        return False
    return not recordeds or standing.last_digest == recordeds[-1].digest.hex()


async def run_projector(
    log: EventLog,
    database_url: str,
    settings: StorageSettings,
    *,
    until: int | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> int:
    """Catch up in large transactions, then follow the log; forever, or up to a position, which is returned.

    Raises:
        ForeignLog: the log is not the one that this read model was folded from, or lost events; or the database holds
            another run's read model.
        ReadModelUnavailable: the database has not answered for `storage.database_wait_s`.
        SettingsError: `storage.database` is no valid address.
    """
    clock = asyncio.get_running_loop().time
    away_since: float | None = None

    def progressed(position: int) -> None:
        nonlocal away_since
        if away_since is not None:
            _log.warning("the database answers again", position=position)
            away_since = None
        if on_progress is not None:
            on_progress(position)

    while True:
        try:
            return await _project(log, database_url, settings, until=until, on_progress=progressed)
        except DatabaseAway as error:
            if away_since is None:
                away_since = clock()
                _log.warning("waiting for the database", limit_s=settings.database_wait_s, error=str(error))
            elif clock() - away_since > settings.database_wait_s:
                raise ReadModelUnavailable(
                    f"{error} It has not answered for {settings.database_wait_s:g} s (storage.database_wait_s); "
                    "nothing is lost, what is missing is folded once it does."
                ) from error
            await asyncio.sleep(RETRY_S)


async def _project(
    log: EventLog,
    database_url: str,
    settings: StorageSettings,
    *,
    until: int | None,
    on_progress: Callable[[int], None],
) -> int:
    model = ReadModel(database_url, run=log.run)
    try:
        notice = await asyncio.to_thread(model.prepare)
        if notice:
            _log.warning(notice, run=log.run)
        await fill(log, model, until=until, strict=False, batch_events=settings.project_events)
        effect = ReadModelEffect(model)
        on_progress(await effect.position())
        return await consume(log, effect, name=NAME, until=until, on_progress=on_progress)
    finally:
        model.close()
