"""Cache of answers by the digest of their question: an equal question is not asked, and not paid for, again.

A file is written whole and durably or not at all, because the batch that held its answer is dropped then. It is checked
when it is read; a damaged file counts as missing. The events that rest on an answer contain it, so these files may be
deleted at any time.
"""

import secrets
from pathlib import Path

import msgspec
import structlog

from hindcast.actors.endpoint.completion import Completion
from hindcast.core.structs import decode_json
from hindcast.events.disk import Disk

logger = structlog.get_logger(__name__)


class AnswerCache:
    """A folder of answers. Processes may share it."""

    def __init__(self, folder: Path | None) -> None:
        """`folder` None: nothing is cached."""
        self._folder = folder

    def find(self, digest: str) -> Completion | None:
        """The answer to the question of this digest. A damaged file is removed."""
        if self._folder is None:
            return None
        try:
            return decode_json(self._path(self._folder, digest).read_bytes(), Completion)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self.forget(digest)
        except OSError:
            pass  # there is no readable answer: the question is asked
        return None

    def keep(self, digest: str, completion: Completion) -> bool:
        """Store an answer. True if it was new: of two processes that waited for one answer, only the first paid for it."""
        if self._folder is None:
            return True
        path = self._path(self._folder, digest)
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            return Disk().create(path, msgspec.json.encode(completion), suffix=secrets.token_hex(4))
        except OSError as error:  # the answer is worth more than its cache entry
            logger.warning("an answer is not remembered", reason=str(error))
            return True

    def forget(self, digest: str) -> None:
        """Remove the answer, so that the question is asked again."""
        if self._folder is None:
            return
        try:
            self._path(self._folder, digest).unlink(missing_ok=True)
        except OSError as error:
            logger.warning("an answer that is of no use stays remembered", reason=str(error))

    @staticmethod
    def _path(folder: Path, digest: str) -> Path:
        return folder / digest[:2] / f"{digest}.json"
