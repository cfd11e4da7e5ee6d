"""The projector: keeps the SQL read model up with the log. Invariant 1, log is the truth, and the position moves with it.

Consumes everything in the log from its own position on. Waits for the log (its adapter's bound) and for the database
(`database.BUSY_TIMEOUT_MS`). Produces rows and, in the same transaction, the position: killed at any moment, it goes on
where its last transaction ended. Nothing of it is in anybody's way: a run does not notice whether it works.
"""

import asyncio
from collections.abc import Callable, Sequence

import structlog

from core.settings import StorageSettings
from events.consumer import consume
from events.envelope import Recorded
from events.log import EventLog
from events.reader import Bookmark
from storage.readmodel.database import ReadModel
from storage.readmodel.filling import bookmark_of, cursor_of, fill
from storage.readmodel.fold import Span, apply

NAME = "projector"

_log = structlog.get_logger(__name__)


class ReadModelEffect:
    """The read model as the effect of a consumer (`events.consumer.Effect`, `Bookmarked`)."""

    def __init__(self, model: ReadModel) -> None:
        self._model = model
        self._position = 0

    async def position(self) -> int:
        """How far the read model is."""
        standing = await asyncio.to_thread(cursor_of, self._model)
        self._position = standing.position if standing else 0
        return self._position

    async def bookmark(self) -> Bookmark | None:
        """Which log it has read."""
        return bookmark_of(await asyncio.to_thread(cursor_of, self._model))

    async def apply(self, recordeds: Sequence[Recorded], position: int) -> None:
        """Fold the events and move the position, in one transaction."""
        await asyncio.to_thread(self._apply, recordeds, position)

    def _apply(self, recordeds: Sequence[Recorded], position: int) -> None:
        with self._model.writing() as connection:
            apply(connection, recordeds, span=Span(after=self._position, reached=position))
        self._position = position


async def run_projector(
    log: EventLog,
    database_url: str,
    settings: StorageSettings,
    *,
    until: int | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> int:
    """Catch up in large transactions, then follow the log; for ever, or up to a position, which is returned.

    Raises:
        ForeignLog: the log is not the one that this read model was folded from, or lost events; or the database holds
            another run's read model.
        ReadModelUnavailable: the database does not answer.
        SettingsError: `storage.database` is no address.

    """
    model = ReadModel(database_url, run=log.run)
    try:
        notice = await asyncio.to_thread(model.prepare)
        if notice:
            _log.warning(notice, run=log.run)
        await fill(log, model, until=until, strict=False, batch_events=settings.project_events)
        effect = ReadModelEffect(model)
        if on_progress is not None:
            on_progress(await effect.position())
        return await consume(log, effect, name=NAME, until=until, on_progress=on_progress)
    finally:
        model.close()
