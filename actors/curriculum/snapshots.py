"""Snapshots of the curriculum's fold: running episodes, their leases, and the tallies of tasks.

Actors read them too: a snapshot names every open episode and the newest weights, so that they need not read the history.

One is saved every so many events, and restored at a start. Like every blob, a snapshot waits for room on a full disk. While
the run is paused for lack of room, none is saved.
"""

import asyncio
from collections import Counter
from hashlib import sha256
from typing import Any

import structlog

from hindcast.actors.curriculum.projection import CurriculumProjection
from hindcast.actors.curriculum.state import CurriculumState
from hindcast.core.errors import DiskFull
from hindcast.core.settings.schema import Settings
from hindcast.events.log.port import EventLog
from hindcast.events.log.publisher import Publisher
from hindcast.storage.blobs.store import BlobStore
from hindcast.storage.snapshots import SnapshotKind, append_snapshot, newest_standing

RULES = (
    "hindcast.actors.curriculum.projection",
    "hindcast.actors.curriculum.state",
    "hindcast.actors.curriculum.phases",
    "hindcast.actors.curriculum.leases",
    "hindcast.actors.curriculum.evaluations",
    "hindcast.core.rl.advantages",
    "hindcast.core.domain.evidence",
    "hindcast.core.ids",
    "hindcast.core.rl.values",
    "hindcast.core.plugins",
    "hindcast.core.rl.algorithm",
    "hindcast.core.rl.algorithm_options",
    "hindcast.core.rl.staleness",
    "hindcast.core.rl.combined_state",
    "hindcast.core.structs",
    "hindcast.core.domain.task",
    "hindcast.events.upcasters",
)
"""Modules whose code determines the state."""


def _from_plain(kind: type, value: Any) -> Any:
    if getattr(kind, "__origin__", kind) is Counter:
        return Counter(value)
    raise TypeError(f"a snapshot cannot hold a {kind.__name__}")


def curriculum_kind(settings: Settings) -> SnapshotKind[CurriculumState]:
    """How the state under these settings is stored; a fork with other settings folds its parent's log itself."""
    return SnapshotKind(
        "curriculum",
        CurriculumState,
        rules=RULES,
        conditions=CurriculumProjection.under(settings).conditions,
        from_plain=_from_plain,
    )


logger = structlog.get_logger(__name__)


class SnapshotKeeper:
    """The curriculum process's access to its snapshots."""

    def __init__(self, log: EventLog, publisher: Publisher, blobs: BlobStore, settings: Settings) -> None:
        self._log = log
        self._publisher = publisher
        self._blobs = blobs
        self._kind = curriculum_kind(settings)
        self._every = settings.storage.snapshot_events
        self._saved_at = 0

    async def restore(self) -> CurriculumState | None:
        """The state at the newest readable snapshot; None: fold from the beginning."""
        standing = await newest_standing(self._log, self._blobs, self._kind)
        if standing is None:
            return None
        self._saved_at = standing.saved.position
        return standing.state

    async def save_if_due(self, state: CurriculumState) -> None:
        """Save the state if enough events were folded since the last snapshot."""
        position = state.position
        if position - self._saved_at < self._every or state.leases.pauses:
            return
        content = self._kind.encode(state)  # before any await: the fold continues meanwhile
        self._saved_at = position
        (last_event,) = await self._log.read(after=position - 1, limit=1)
        try:
            blob = await asyncio.to_thread(self._blobs.put, content)
        except DiskFull as error:
            logger.warning("no snapshot: the next start folds more", reason=str(error))
            return
        digest = sha256(last_event.data).digest()
        await append_snapshot(
            self._log, self._publisher, self._kind, blob, position=position, position_digest=digest
        )
        logger.info("snapshot saved", position=position, size_bytes=blob.size)
