"""Batches in progress as files in the home. They outlive the process, and no two processes send one question.

    DIR/KEY.json   its questions, stored before the batch begins, and the server's name for it
    DIR/KEY.lock   held by a process that begins the batch, or checks whether it was begun

A process claims questions before it sends them, one process at a time. It does not send questions that another's batch
holds, or that are cached by then. A process that ends releases its locks, but its files stay.
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
from hindcast.core.structs import decode_json
from hindcast.events.disk import PRIVATE_FILE, PRIVATE_FOLDER, Disk


class StoredBatch(msgspec.Struct, kw_only=True):
    """A batch in the form that its file stores."""

    key: str
    """Its unique key here, and in its metadata at the server."""
    base_url: str
    questions: list[str]
    """sha256 of each unsettled question: its answer is not cached, nor known to be missing."""
    batch: str = ""
    """The server's name for it; empty: it may not have been created."""


class ClaimResult(NamedTuple):
    """The claimed questions that are not to be sent."""

    elsewhere: dict[str, StoredBatch]
    """By question: the batch of another process that holds it."""
    remembered: dict[str, Completion]
    """By question: an answer that was cached in the meantime."""


class BatchFiles:
    """The folder of batch files. Processes may share it. All calls are synchronous."""

    def __init__(self, folder: Path, *, base_url: str, memory: AnswerCache) -> None:
        """The folder is made with the first batch; batches of other servers are not touched."""
        self._folder = folder
        self._base_url = base_url
        self._memory = memory

    def new(self, questions: list[str]) -> StoredBatch:
        """A batch of the questions, not stored yet."""
        return StoredBatch(key=secrets.token_hex(16), base_url=self._base_url, questions=questions)

    def left(self) -> list[StoredBatch]:
        """The stored batches of this server, without questions cached by now. Raises OSError."""
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
        """Store a batch of those of its questions that no other process sends. `own`: keys of batches whose content this process
        already knows. Raises OSError.
        """
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
        """The batch as stored now; None: it was dropped, or its file was damaged, and its questions are asked again."""
        try:
            return decode_json(self._place(key).read_bytes(), StoredBatch)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return None

    def write(self, kept: StoredBatch) -> None:
        """Store the batch, unless it was dropped meanwhile. Raises OSError."""
        with self._alone():
            if self._place(kept.key).exists():
                self._replace(kept)

    def settle(self, key: str, questions: Collection[str], *, last: bool) -> set[str]:
        """Remove questions from a batch's file, and the file with the `last`. Returns those that were in it; another process
        settled the others. Raises OSError.
        """
        with self._alone():
            standing = self.read(key)
            if standing is None:
                whole = self._place(key).exists()  # damaged: those who know its questions count them
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
        """Remove a batch's file. Raises OSError."""
        with self._alone():
            self._place(key).unlink(missing_ok=True)

    @contextmanager
    def held(self, key: str) -> Iterator[bool]:
        """Lock a batch for beginning or checking it until the end of the block; False if another process has it. Raises OSError."""
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
        """Lock the folder: no other process changes the files meanwhile."""
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
    """Whether a lock file is still the one of its name: its last holder removes it."""
    try:
        return os.path.samestat(os.fstat(lock), place.stat())
    except FileNotFoundError:
        return False
