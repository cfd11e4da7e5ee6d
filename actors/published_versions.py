"""What a run itself trains and publishes for those who judge or relabel: the newest version of a model, and every newer one.

Free of torch: who speaks from weights is made by the caller.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import aclosing
from typing import Generic, TypeVar

import structlog

from hindcast.actors.family_follower import follow, look_back
from hindcast.core.errors import BlobMissing
from hindcast.events.catalogue import WeightsPublished
from hindcast.events.envelope import Recorded
from hindcast.events.log.port import EventLog

FAMILY = "learner"

Speaker = TypeVar("Speaker")

logger = structlog.get_logger(__name__)


class PublishedVersions(Generic[Speaker]):
    """The published versions of one model, each as somebody who speaks from it."""

    def __init__(self, model: str, make: Callable[[WeightsPublished | None], Speaker]) -> None:
        """`make`: who speaks from a version, None: before the first. Blocks; raises BlobMissing where it was let go of."""
        self._model = model
        self._make = make
        self._position = 0
        """Publications are known up to here."""

    async def begin(self, log: EventLog) -> Speaker:
        """Who speaks from the newest version that the log knows now.

        One whose weights were let go of is passed over as if none were published: as in a fork from a place that the
        parent keeps no weights of. What is read then is what the next version learns from.

        Raises whatever `make` raises.
        """
        self._position = (await log.identity()).last
        published = await find_newest(log, self._model, until=self._position)
        try:
            return await asyncio.to_thread(self._make, published)
        except BlobMissing as error:
            logger.warning(
                "nobody speaks before the next version: the weights are gone",
                model=self._model,
                reason=str(error),
            )
            return await asyncio.to_thread(self._make, None)

    async def follow(self, log: EventLog, replace: Callable[[Speaker], None]) -> None:
        """Hand over every newer one as it is published, for ever; one that is gone already is passed over.

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
                        "a version was let go of: a newer one must follow",
                        model=self._model,
                        version=published.version,
                    )


def newest(events: Iterable[Recorded], model: str) -> WeightsPublished | None:
    """The last publication of a model among these events, oldest first."""
    found = None
    for recorded in events:
        if isinstance(recorded.fact, WeightsPublished) and recorded.fact.model == model:
            found = recorded.fact
    return found


async def find_newest(log: EventLog, model: str, *, until: int) -> WeightsPublished | None:
    """The last publication of a model up to position `until`, looked for from there back.

    A run that trains one publishes it again and again, so that the look is short.
    """
    found, end = None, until
    while found is None and end > 0:
        stretch, end = await look_back(log, until=end, families={FAMILY})
        found = newest(stretch, model)
    return found
