"""Batches under way as files in the home, so that they outlive the process, and so that no two processes send one question.

    DIR/KEY.json   its questions, kept before the batch is begun, and the server's name for it
    DIR/KEY.lock   held while somebody begins it, or looks whether it was begun

Who would send questions claims them first, one process after the other: what another's batch holds, or what is remembered by
then, is not sent again. A process that ends lets go of its locks, but its files stay.
"""

import fcntl
import os
import secrets
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from hindcast.actors.endpoint.answer_cache import AnswerCache
from hindcast.actors.endpoint.completion import Completion
from hindcast.events.disk import PRIVATE_FILE, PRIVATE_FOLDER, Disk


class StoredBatch(msgspec.Struct, kw_only=True):
    """A batch as it is kept in a file."""

    key: str
    """Its name here, and in its metadata at the server; of this batch alone."""
    base_url: str
    questions: list[str]
    """sha256 of each, whose answer is neither remembered nor known to be none."""
    batch: str = ""
    """The server's name for it; empty: it may not have come to be."""


class ClaimResult(NamedTuple):
    """What became of questions that were to be sent, beside those that are."""

    elsewhere: dict[str, StoredBatch]
    """By question: the batch of another process that holds it."""
    remembered: dict[str, Completion]
    """By question: what it was answered in the meantime."""


class BatchFiles:
    """The folder. Processes may share it. All calls are synchronous."""

    def __init__(self, folder: Path, *, base_url: str, memory: AnswerCache) -> None:
        """Made when the first batch is kept; batches of other servers are left alone."""
        self._folder = folder
        self._base_url = base_url
        self._memory = memory

    def new(self, questions: list[str]) -> StoredBatch:
        """A batch of these questions, kept by nobody yet."""
        return StoredBatch(key=secrets.token_hex(16), base_url=self._base_url, questions=questions)

    def left(self) -> list[StoredBatch]:
        """What is kept of this server's batches, less what is remembered by now. Raises OSError."""
        if not self._folder.is_dir():
            return []
        with self._alone():
            return self._left()

    def _left(self) -> list[StoredBatch]:
        found = []
        for place in sorted(self._folder.glob("*.json")):
            kept = self.read(place.stem)
            if kept is None or kept.base_url != self._base_url:
                continue
            kept.questions = [name for name in kept.questions if self._memory.find(name) is None]
            if kept.questions:
                found.append(kept)
            else:
                place.unlink(missing_ok=True)
        return found

    def claim(self, kept: StoredBatch, *, own: Collection[str]) -> ClaimResult:
        """Keep a batch of those of its questions that nobody else sends. `own`: keys of batches that need no look, since this
        process knows what they hold. Raises OSError."""
        with self._alone():
            others = {
                name: other for other in self._left() if other.key not in own for name in other.questions
            }
            asked = set(kept.questions)
            remembered = {name: said for name in asked - others.keys() if (said := self._memory.find(name))}
            mine = msgspec.structs.replace(kept, questions=sorted(asked - others.keys() - remembered.keys()))
            if mine.questions:
                self._replace(mine)
            kept.questions = mine.questions
        return ClaimResult({name: others[name] for name in asked & others.keys()}, remembered)

    def read(self, key: str) -> StoredBatch | None:
        """As it is kept now; None: it is let go of, or its file was damaged, and its questions are asked again."""
        try:
            return msgspec.json.decode(self._place(key).read_bytes(), type=StoredBatch)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return None

    def write(self, kept: StoredBatch) -> None:
        """Keep it as it is, unless it was let go of meanwhile. Raises OSError."""
        with self._alone():
            if self._place(kept.key).exists():
                self._replace(kept)

    def settle(self, key: str, questions: Collection[str], *, last: bool) -> set[str]:
        """Take questions out of a batch's file, and let go of it after the `last`. Those of them that stood in it: the others
        were settled by another process. Raises OSError."""
        with self._alone():
            standing = self.read(key)
            if standing is None:
                whole = self._place(key).exists()  # damaged: whoever can still tell of it does
                self._place(key).unlink(missing_ok=True)
                return set(questions) if whole else set()
            found = set(questions).intersection(standing.questions)
            left = [name for name in standing.questions if name not in found]
            if last or not left:
                self._place(key).unlink(missing_ok=True)
            elif found:
                self._replace(msgspec.structs.replace(standing, questions=left))
            return found

    def drop(self, key: str) -> None:
        """Let go of it. Raises OSError."""
        with self._alone():
            self._place(key).unlink(missing_ok=True)

    @contextmanager
    def held(self, key: str) -> Iterator[bool]:
        """Whether this process alone begins this batch, or looks for it, until the end of the block. Raises OSError."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=PRIVATE_FOLDER)
        place = self._folder / f"{key}.lock"
        lock = os.open(place, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
        try:
            ours = _taken(lock) and _is_at(lock, place)
            try:
                yield ours
            finally:
                if ours:
                    place.unlink(missing_ok=True)
        finally:
            os.close(lock)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """No other process changes the files meanwhile."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=PRIVATE_FOLDER)
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with suppress(OSError):  # a disk without locks
                fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def _replace(self, kept: StoredBatch) -> None:
        Disk().replace(self._place(kept.key), msgspec.json.encode(kept))

    def _place(self, key: str) -> Path:
        return self._folder / f"{key}.json"


def _taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a disk without locks
        return True
    return True


def _is_at(lock: int, place: Path) -> bool:
    """Whether a lock is still the one of its name: whoever held it before takes it away."""
    try:
        return os.path.samestat(os.fstat(lock), place.stat())
    except FileNotFoundError:
        return False
