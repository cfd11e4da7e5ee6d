"""Answers kept by the digest of their question: an equal question is not asked, and not paid for, again.

A file is written whole and durably or not at all, since the batch that an answer came in is let go of then, and is
checked when it is read: one that is damaged is as if it were not there. What a model said stands in the fact that rests
on it, so that these files can be deleted at any time.
"""

import secrets
from pathlib import Path

import msgspec
import structlog

from hindcast.actors.endpoint.completion import Completion
from hindcast.events.disk import Disk

logger = structlog.get_logger(__name__)


class AnswerCache:
    """A folder of answers. Processes may share it."""

    def __init__(self, folder: Path | None) -> None:
        """`folder` None: nothing is remembered."""
        self._folder = folder

    def find(self, digest: str) -> Completion | None:
        """The answer to the question of this digest. One that is damaged is forgotten."""
        if self._folder is None:
            return None
        try:
            return msgspec.json.decode(self._place(self._folder, digest).read_bytes(), type=Completion)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self.forget(digest)
        except OSError:
            pass  # there is none, or none that can be read: the question is asked
        return None

    def keep(self, digest: str, completion: Completion) -> bool:
        """Remember an answer. Whether nobody had before: of two who waited for one answer, the first alone has paid for it."""
        if self._folder is None:
            return True
        place = self._place(self._folder, digest)
        try:
            place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            return Disk().create(place, msgspec.json.encode(completion), mine=secrets.token_hex(4))
        except OSError as error:  # what was answered is worth more than that it is remembered
            logger.warning("an answer is not remembered", reason=str(error))
            return True

    def forget(self, digest: str) -> None:
        """The question is to be asked again."""
        if self._folder is None:
            return
        try:
            self._place(self._folder, digest).unlink(missing_ok=True)
        except OSError as error:
            logger.warning("an answer that is of no use stays remembered", reason=str(error))

    @staticmethod
    def _place(folder: Path, digest: str) -> Path:
        return folder / digest[:2] / f"{digest}.json"
