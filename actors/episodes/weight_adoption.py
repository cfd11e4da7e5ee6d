"""Loads the newest published weights into the engine and records the adoption.

Invariant "Adopted is not published": weights.adopted is appended once the engine has the weights. Versions published
while another is loading are skipped. So is a version that is deleted meanwhile, because a newer one exists then.
"""

import asyncio
import time
from collections.abc import Iterable

import structlog

from hindcast.actors.engines.base import PolicyEngine
from hindcast.core.errors import BlobMissing, ModelFileError
from hindcast.events.catalogue import WeightsAdopted, WeightsPublished
from hindcast.events.envelope import Recorded
from hindcast.events.log.publisher import Publisher
from hindcast.storage.blobs.store import BlobStore

logger = structlog.get_logger(__name__)


class Adoption:
    """Keeps one actor's engine at the newest policy version."""

    def __init__(self, *, actor: str, engine: PolicyEngine, publisher: Publisher, blobs: BlobStore) -> None:
        self._actor = actor
        self._engine = engine
        self._publisher = publisher
        self._blobs = blobs
        self._adopted = asyncio.Condition()

    async def begin(self) -> None:
        """Record the version that the engine samples from at the start."""
        await self._record(load_ms=0.0, causation=None)

    async def take(self, published: Recorded | None) -> None:
        """Adopt a published version if it is newer than the engine's.

        Raises:
            ModelFileError, EngineFailed: the weights cannot be loaded.
        """
        if published is None or version_of(published) <= self._engine.version:
            return
        fact = published.fact
        assert isinstance(fact, WeightsPublished)
        try:
            path = await asyncio.to_thread(self._blobs.path, fact.weights)
        except BlobMissing:
            logger.warning("published weights are gone: a newer version must follow", version=fact.version)
            return
        began = time.monotonic()
        try:
            await self._engine.adopt(fact.version, path)
        except ModelFileError:
            if path.exists():
                raise
            logger.warning("published weights were deleted while they were read", version=fact.version)
            return
        await self._record(load_ms=(time.monotonic() - began) * 1000, causation=published.envelope.id)
        async with self._adopted:
            self._adopted.notify_all()

    async def _record(self, *, load_ms: float, causation: str | None) -> None:
        version = self._engine.version
        fact = WeightsAdopted(actor=self._actor, version=version, load_ms=load_ms)
        await self._publisher.publish(
            fact, entity=f"version_{version}", causation=causation, policy_version=version
        )

    async def reach(self, version: int, *, within_s: float) -> bool:
        """Wait until the engine samples from `version` or newer; False if it does not within `within_s` seconds."""
        try:
            async with asyncio.timeout(within_s), self._adopted:
                await self._adopted.wait_for(lambda: self._engine.version >= version)
        except TimeoutError:
            return False
        return True


def newest_policy(events: Iterable[Recorded], *, than: Recorded | None = None) -> Recorded | None:
    """Return the publication of the newest policy version among `events` and `than`."""
    newest = than
    for event in events:
        fact = event.fact
        if isinstance(fact, WeightsPublished) and fact.model == "policy":
            newest = event if newest is None or fact.version > version_of(newest) else newest
    return newest


def version_of(published: Recorded) -> int:
    """The version that a weights.published names."""
    fact = published.fact
    assert isinstance(fact, WeightsPublished)
    return fact.version
