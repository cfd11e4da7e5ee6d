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

    def create(self, questions: list[str]) -> StoredBatch:
        """A batch of the questions, not stored yet."""
        return StoredBatch(key=secrets.token_hex(16), base_url=self._base_url, questions=questions)

    def pending(self) -> list[StoredBatch]:
        """The stored batches of this server, without questions cached by now. Raises OSError."""
        if not self._folder.is_dir():
            return []
        with self._alone():
            return self._pending()

    def _pending(self) -> list[StoredBatch]:
        pending = []
        for path in sorted(self._folder.glob("*.json")):
            batch = self.load(path.stem)
            if batch is None or batch.base_url != self._base_url:
                continue
            batch.questions = [name for name in batch.questions if self._memory.find(name) is None]
            if batch.questions:
                pending.append(batch)
            else:
                path.unlink(missing_ok=True)
        return pending

    def claim(self, batch: StoredBatch, *, own_keys: Collection[str]) -> ClaimResult:
        """Store a batch of those of its questions that no other process sends. `own_keys`: keys of batches whose content this process
        already knows. Raises OSError.
        """
        with self._alone():
            by_others = {
                name: other_batch
                for other_batch in self._pending()
                if other_batch.key not in own_keys
                for name in other_batch.questions
            }
            questions = set(batch.questions)
            remembered = {
                name: answer for name in questions - by_others.keys() if (answer := self._memory.find(name))
            }
            claimed = msgspec.structs.replace(
                batch, questions=sorted(questions - by_others.keys() - remembered.keys())
            )
            if claimed.questions:
                self._replace(claimed)
            batch.questions = claimed.questions
        return ClaimResult({name: by_others[name] for name in questions & by_others.keys()}, remembered)

    def load(self, key: str) -> StoredBatch | None:
        """The batch as stored now; None: it was dropped, or its file was damaged, and its questions are asked again."""
        try:
            return decode_json(self._path(key).read_bytes(), StoredBatch)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return None

    def write(self, batch: StoredBatch) -> None:
        """Store the batch, unless it was dropped meanwhile. Raises OSError."""
        with self._alone():
            if self._path(batch.key).exists():
                self._replace(batch)

    def settle(self, key: str, questions: Collection[str], *, last: bool) -> set[str]:
        """Remove questions from a batch's file, and the file with the `last`. Returns those that were in it; another process
        settled the others. Raises OSError.
        """
        with self._alone():
            standing = self.load(key)
            if standing is None:
                exists = self._path(key).exists()  # damaged: those who know its questions count them
                self._path(key).unlink(missing_ok=True)
                return set(questions) if exists else set()
            removed = set(questions).intersection(standing.questions)
            remaining = [name for name in standing.questions if name not in removed]
            if last or not remaining:
                self._path(key).unlink(missing_ok=True)
            elif removed:
                self._replace(msgspec.structs.replace(standing, questions=remaining))
            return removed

    def drop(self, key: str) -> None:
        """Remove a batch's file. Raises OSError."""
        with self._alone():
            self._path(key).unlink(missing_ok=True)

    @contextmanager
    def locked(self, key: str) -> Iterator[bool]:
        """Lock a batch for beginning or checking it until the end of the block; False if another process has it. Raises OSError."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=PRIVATE_FOLDER)
        lock_path = self._folder / f"{key}.lock"
        lock = os.open(lock_path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
        try:
            is_locked = _try_lock(lock) and _is_at(lock, lock_path)
            try:
                yield is_locked
            finally:
                if is_locked:
                    lock_path.unlink(missing_ok=True)
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

    def _replace(self, batch: StoredBatch) -> None:
        Disk().replace(self._path(batch.key), msgspec.json.encode(batch))

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.json"


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a disk without locks
        return True
    return True


def _is_at(lock: int, path: Path) -> bool:
    """Whether a lock file is still the one of its name: its last holder removes it."""
    try:
        return os.path.samestat(os.fstat(lock), path.stat())
    except FileNotFoundError:
        return False
