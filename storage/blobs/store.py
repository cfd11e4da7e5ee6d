"""Blobs: content next to the log, named by its digest, such as page snapshots, weights, checkpoints.

A blob is durable before an event names it (file and folders synced, then renamed), stored once however often it is put,
readable by its owner alone, and checked against its name when it is read. A file's modification time is that of the last put.
Releasing a blob is an event (`blob.released`); an audit accepts a released blob, never a missing one.
On a full disk `put` waits for room (`storage.full_wait_s`) and leaves nothing behind if none appears. Unfinished files of a
killed process stay in the folder `UNFINISHED` until `sweep` is called. Sweeping is safe at any time, since a writer holds a
lock on its file.
All calls are synchronous; async code uses `asyncio.to_thread`.
"""

import errno
import fcntl
import hashlib
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TypeVar

import structlog

from hindcast.core.errors import BlobCorrupt, BlobMissing, DiskFull
from hindcast.core.ids import digest_hex
from hindcast.events.envelope import BlobRef

T = TypeVar("T")
UNFINISHED = "unfinished"
"""Subfolder for files that are being written."""
FULL_WAIT_S = 30.0
FIRST_RETRY_S = 0.1
LONGEST_RETRY_S = 5.0
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The disk is full, the user's quota is used up, or a file may not grow any further (`ulimit -f`)."""

_DIGEST = re.compile(r"[0-9a-f]{64}")
_log = structlog.get_logger(__name__)


class BlobStore:
    """A folder of blobs, fanned out by the first two bytes of their digest. Processes may share it."""

    def __init__(
        self,
        folder: Path,
        *,
        also: Sequence[Path] = (),
        full_wait_s: float = FULL_WAIT_S,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """The folder is created at the first put. `also`: folders of other runs whose blobs can be read here.
        `full_wait_s`: seconds that a put waits for room on a full disk.
        """
        self._folder = folder
        self._also = tuple(also)
        self._full_wait_s = full_wait_s
        self._sleep = sleep

    def put(self, content: bytes) -> BlobRef:
        """Store content durably; equal content is stored once.

        Raises:
            DiskFull: there was no room in time; nothing was stored.
        """
        ref = BlobRef(digest_hex(content), len(content))
        self._when_there_is_room(ref, lambda: self._store(ref, lambda file: file.write(content)))
        return ref

    def _when_there_is_room(self, ref: BlobRef, work: Callable[[], T]) -> T:
        """Do work that stores a blob, again and again while the disk is full. Raises DiskFull."""
        waited_s, wait_s = 0.0, FIRST_RETRY_S
        while True:
            try:
                result = work()
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                if waited_s >= self._full_wait_s:
                    raise DiskFull(
                        f"there is no room for a blob of {ref.size} bytes in {self._folder}, and none appeared within "
                        f"{self._full_wait_s:g} s (storage.full_wait_s): {error.strerror}. Nothing is lost, and no partial "
                        "file is left. Make room on that disk, and the run continues."
                    ) from error
                if waited_s == 0:
                    _log.error("no room for a blob: waiting", folder=str(self._folder), reason=error.strerror)
                self._sleep(wait_s)
                waited_s, wait_s = waited_s + wait_s, min(LONGEST_RETRY_S, 2 * wait_s)
            else:
                if waited_s:
                    _log.info("there is room for blobs again", waited_s=round(waited_s, 1))
                return result

    def _store(self, ref: BlobRef, write: Callable[[IO[bytes]], object]) -> None:
        """Store what `write` writes to a file, unless the blob is there. If it raises, nothing is stored."""
        path = self._path_of(ref)
        if not _renew(path, ref):
            self._make_folders(path.parent)
            with self._unfinished(ref) as (temporary, file):
                write(file)
                file.flush()
                os.fsync(file.fileno())
                temporary.rename(path)
        # even if another process has just put it: its rename may not be durable yet
        _sync_folder(path.parent)

    @contextmanager
    def _unfinished(self, ref: BlobRef) -> Iterator[tuple[Path, IO[bytes]]]:
        """A new locked file, deleted on exit unless it was renamed."""
        folder = self._folder / UNFINISHED
        self._make_folders(folder)
        while True:
            temporary = folder / f"{ref.sha256}.{secrets.token_hex(4)}"
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                with suppress(OSError):
                    # a disk without locks: `sweep` gets no lock there either, and deletes nothing
                    fcntl.flock(file, fcntl.LOCK_EX)
                if os.fstat(file.fileno()).st_nlink == 0:
                    continue  # swept before it was locked
                try:
                    yield temporary, file
                    return
                finally:
                    temporary.unlink(missing_ok=True)

    def sweep(self) -> int:
        """Delete the unfinished files of killed processes; returns their number. Safe while others write."""
        swept = 0
        for path in (self._folder / UNFINISHED).glob("*"):
            with suppress(OSError), path.open("rb") as file:  # it is finished, or locked by a living writer
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
                swept += 1
        return swept

    def keep(self, ref: BlobRef) -> None:
        """Add another run's blob to this store, as a hard link if the disk allows it, so that its deletion there does no harm.

        Raises:
            BlobMissing, BlobCorrupt, DiskFull.
        """
        content, source, own_path = self.get(ref), self._find(ref), self._path_of(ref)
        if source == own_path:
            return
        self._make_folders(own_path.parent)
        try:
            own_path.hardlink_to(source)
        except OSError:  # another disk, a disk without links, or a release meanwhile
            self.put(content)
        else:
            _sync_folder(own_path.parent)

    def get(self, ref: BlobRef) -> bytes:
        """Read and check a blob.

        Raises:
            BlobMissing, BlobCorrupt.
        """
        path = self._find(ref)
        try:
            # size first: a file of another size is damaged, and may be huge
            content = path.read_bytes() if path.stat().st_size == ref.size else b""
            size = path.stat().st_size
        except FileNotFoundError as error:
            raise self._missing(ref) from error
        if len(content) != ref.size or digest_hex(content) != ref.sha256:
            raise _damaged(ref, path, size, digest_hex(content) if content else "")
        return content

    def path(self, ref: BlobRef) -> Path:
        """Path of a blob, for readers that map files. Checks existence and size, but not the digest.

        Raises:
            BlobMissing, BlobCorrupt.
        """
        path = self._find(ref)
        if not path.is_file():
            raise self._missing(ref)
        size = path.stat().st_size
        if size != ref.size:
            raise BlobCorrupt(
                f"blob {ref.sha256[:16]}… at {path} is damaged: it has {size} bytes, its event says {ref.size}. "
                "Restore it from a backup."
            )
        return path

    def checked_path(self, ref: BlobRef) -> Path:
        """Path of a blob whose digest was checked, without holding its content in memory.

        Raises:
            BlobMissing, BlobCorrupt.
        """
        path = self.path(ref)
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != ref.sha256:
            raise _damaged(ref, path, ref.size, digest)
        return path

    def has(self, ref: BlobRef) -> bool:
        """Whether a blob of this name and size exists."""
        path = self._find(ref)
        return path.is_file() and path.stat().st_size == ref.size

    def release(self, ref: BlobRef) -> None:
        """Delete a blob of this store, if it exists. Append `blob.released` first."""
        self._path_of(ref).unlink(missing_ok=True)

    def own_since(self, ref: BlobRef) -> float | None:
        """Time of the last put of a blob in this store, in seconds since 1970; None: it is not here."""
        try:
            return self._path_of(ref).stat().st_mtime
        except FileNotFoundError:
            return None

    def release_unless_renewed(self, ref: BlobRef, *, since: float) -> bool:
        """Delete a blob of this store unless it was put again after `since`; returns whether it is gone.

        A process that has just put a blob is about to append the event that names it.
        """
        path = self._path_of(ref)
        with suppress(FileNotFoundError), _locked(path.parent, fcntl.LOCK_EX):
            if path.stat().st_mtime > since:
                return False
            path.unlink()
        return True

    def _find(self, ref: BlobRef) -> Path:
        """Path of the blob, in this store or another run's; in this store if it is nowhere."""
        own_path = self._path_of(ref)
        if own_path.is_file():
            return own_path
        other_paths = (folder / own_path.relative_to(self._folder) for folder in self._also)
        return next((path for path in other_paths if path.is_file()), own_path)

    @property
    def folders(self) -> tuple[Path, ...]:
        """Folders to search, in this order."""
        return (self._folder, *self._also)

    def _path_of(self, ref: BlobRef) -> Path:
        if not _DIGEST.fullmatch(ref.sha256):
            raise BlobCorrupt(f"{ref.sha256!r} is no blob's name: 64 hexadecimal digits are expected")
        return self._folder / ref.sha256[:2] / ref.sha256[2:4] / ref.sha256

    def _make_folders(self, folder: Path) -> None:
        new_folders = []
        while not folder.is_dir():
            new_folders.append(folder)
            folder = folder.parent
        for path in reversed(new_folders):
            path.mkdir(mode=0o700, exist_ok=True)
            _sync_folder(path.parent)

    def _missing(self, ref: BlobRef) -> BlobMissing:
        return BlobMissing(
            f"blob {ref.sha256[:16]}… ({ref.size} bytes) is not in {self._folder}, though an event names it. Unless it was released "
            "(hindcast audit shows that), the folder was moved or cleaned: restore it from a backup."
        )


def _damaged(ref: BlobRef, path: Path, size: int, digest: str) -> BlobCorrupt:
    """`size`, `digest`: of the file; empty: its digest was not computed."""
    return BlobCorrupt(
        f"blob {ref.sha256[:16]}… at {path} is damaged: it holds {size} bytes"
        f"{f' with sha256 {digest[:16]}…' if digest else ''}, its name promises {ref.size}. Restore it from a backup."
    )


def _renew(path: Path, ref: BlobRef) -> bool:
    """Update the time of an existing blob, so that no process deletes it as unused; False: it does not exist."""
    try:
        with _locked(path.parent, fcntl.LOCK_SH):
            if path.stat().st_size != ref.size:
                return False
            os.utime(path)
            return True
    except FileNotFoundError:
        return False


@contextmanager
def _locked(folder: Path, mode: int) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # a disk without locks
            fcntl.flock(descriptor, mode)
        yield
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
