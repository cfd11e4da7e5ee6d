"""The published versions of a model that the run trains for judging or relabelling: the newest one, and every newer one.

This module does not import torch: the caller makes the judge or relabeler of a version.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import aclosing
from typing import Generic, TypeVar

import structlog

from hindcast.actors.log_follower import follow, look_back
from hindcast.core.errors import BlobMissing
from hindcast.events.catalogue import WeightsPublished
from hindcast.events.envelope import Recorded
from hindcast.events.log.port import EventLog

FAMILY = "learner"

Speaker = TypeVar("Speaker")

logger = structlog.get_logger(__name__)


class PublishedVersions(Generic[Speaker]):
    """The published versions of one model, each as a judge or relabeler (`Speaker`)."""

    def __init__(self, model: str, make: Callable[[WeightsPublished | None], Speaker]) -> None:
        """`make`: makes the speaker of a version, None: before the first. Blocks; raises BlobMissing where it was deleted."""
        self._model = model
        self._make = make
        self._position = 0
        """Position up to which publications are known."""

    async def begin(self, log: EventLog) -> Speaker:
        """The speaker of the newest version in the log now.

        A version whose weights were deleted counts as none: for example in a fork from a place whose weights the parent did not
        keep. What is read then is what the next version learns from.

        Raises whatever `make` raises.
        """
        self._position = (await log.identity()).last
        published = await find_newest(log, self._model, until=self._position)
        try:
            return await asyncio.to_thread(self._make, published)
        except BlobMissing as error:
            logger.warning(
                "the newest version cannot be used before the next one: its weights are gone",
                model=self._model,
                reason=str(error),
            )
            return await asyncio.to_thread(self._make, None)

    async def follow(self, log: EventLog, replace: Callable[[Speaker], None]) -> None:
        """Pass every newer version to `replace` as it is published, forever; versions already deleted are skipped.

        Called once, after `begin`. Raises whatever `make` raises.
        """
        async with aclosing(follow(log, after=self._position, families={FAMILY})) as batches:
            async for followed in batches:
                published = newest(followed.recorded, self._model)
                if published is None:
                    continue
                try:
                    replace(await asyncio.to_thread(self._make, published))
                except BlobMissing:
                    logger.warning(
                        "a version was deleted: a newer one must follow",
                        model=self._model,
                        version=published.version,
                    )


def newest(events: Iterable[Recorded], model: str) -> WeightsPublished | None:
    """The last publication of a model among events, which are oldest first."""
    publication = None
    for recorded in events:
        if isinstance(recorded.fact, WeightsPublished) and recorded.fact.model == model:
            publication = recorded.fact
    return publication


async def find_newest(log: EventLog, model: str, *, until: int) -> WeightsPublished | None:
    """The last publication of a model up to position `until`, searched backwards from there.

    A run that trains a model publishes it often, so the search is short.
    """
    publication, end = None, until
    while publication is None and end > 0:
        stretch, end = await look_back(log, until=end, families={FAMILY})
        publication = newest(stretch, model)
    return publication
