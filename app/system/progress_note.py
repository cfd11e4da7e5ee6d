"""A snapshot of `hindcast start`'s progress fold, stored in the run's folder so that the next start reads less of the log.

It is never the truth. A snapshot of other code or of another log, or an unreadable one, is ignored, and the log is folded
from its beginning.
"""

from contextlib import suppress
from pathlib import Path

import msgspec
import structlog

from hindcast.app.system.processes import read_json, write_json
from hindcast.app.system.progress import Progress
from hindcast.core.errors import ForeignLog
from hindcast.events.log.port import EventLog
from hindcast.events.log.reader import Bookmark, check_log
from hindcast.storage.snapshots import SnapshotKind

FILE = "progress.json"
EVERY_EVENTS = 10_000
"""Events between two snapshots; the next start reads about as many."""

_KIND = SnapshotKind(
    "progress", Progress, rules=("hindcast.app.system.progress", "hindcast.actors.environments.web.starts")
)
logger = structlog.get_logger(__name__)


class _Note(msgspec.Struct, frozen=True, kw_only=True):
    schema: str
    progress: Progress


class ProgressNote:
    """Snapshot of one run's progress."""

    def __init__(self, folder: Path) -> None:
        """`folder`: the run's folder."""
        self._path = folder / FILE
        self._written_at = 0

    async def recall(self, log: EventLog) -> Progress:
        """The stored progress, or an empty one to be folded from the beginning."""
        content = read_json(self._path)
        if content is None:
            return Progress()
        try:
            note = msgspec.convert(content, _Note, str_keys=True)
            if note.schema != _KIND.schema:
                return Progress()
            progress = note.progress
            bookmark = Bookmark(
                position=progress.position, digest=bytes.fromhex(progress.digest), first_digest=b""
            )
            await check_log(log, after=progress.position, bookmark=bookmark)
        except (ForeignLog, ValueError) as error:
            logger.warning("the note of the run's progress is ignored", reason=str(error))
            return Progress()
        self._written_at = progress.position
        return progress

    def keep(self, progress: Progress, *, at_least: int = EVERY_EVENTS) -> None:
        """Store the progress if at least so many events followed the last snapshot; on a full disk the old one remains."""
        if progress.position - self._written_at < at_least:
            return
        with suppress(OSError):
            note = _Note(schema=_KIND.schema, progress=progress)
            write_json(self._path, msgspec.to_builtins(note, str_keys=True))
            self._written_at = progress.position
