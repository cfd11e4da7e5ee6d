"""Blobs in a bucket that all machines of a run share; each machine caches those used last in a folder.

The guarantees are those of `storage.blobs.store`: a blob is durable before an event names it (the server has confirmed it),
stored once however often it is put, and checked against its name whenever it is read. Readers by path (weights are mapped
into memory) get the path of the cached copy.
The cache holds at most `cache_bytes`, and everything used within `FRESH_S`: a path that was handed out is about to be
opened. The cache may be deleted at any time.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

from hindcast.core.errors import BlobCorrupt, BlobMissing, SettingsError
from hindcast.core.ids import digest_hex
from hindcast.core.settings.operation import StorageSettings
from hindcast.events.envelope import BlobRef
from hindcast.storage.blobs.bucket import Bucket, is_bucket
from hindcast.storage.blobs.store import FULL_WAIT_S, NO_ROOM, BlobStore

if TYPE_CHECKING:
    from obstore import Bytes

FRESH_S = 600.0
"""Seconds after its last use during which a blob stays in the cache, whatever the cache's size."""
SWEEP_SHARE = 0.05
"""New content, as a share of `cache_bytes`, after which old content is deleted."""
KEEPS_PAGES = (
    "storage.keep_page_episodes needs a lock to release pages, and a bucket (storage.blobs = s3://…) has none: "
    "an equal page that is put again meanwhile would be lost. Leave it at 0"
)
MIB = 1024 * 1024


class RemoteBlobStore(BlobStore):
    """A `BlobStore` whose folder is a cache of a bucket. Processes of one machine may share the folder."""

    def __init__(
        self,
        folder: Path,
        buckets: Sequence[Bucket],
        *,
        cache_bytes: int,
        also: Sequence[Path] = (),
        full_wait_s: float = FULL_WAIT_S,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`buckets`: first the run's own; the others, and the folders `also`, are its ancestors' and read-only."""
        super().__init__(folder, also=also, full_wait_s=full_wait_s, sleep=sleep)
        self.buckets = tuple(buckets)
        self._cache_bytes = cache_bytes
        self._added = cache_bytes  # make room at the first use: another process may have filled it

    def put(self, content: bytes) -> BlobRef:
        """See `BlobStore.put`.

        Raises:
            BlobsUnreachable: the server did not accept it.
        """
        ref = BlobRef(digest_hex(content), len(content))
        self.buckets[0].put(ref.sha256, content)
        self._remember(content)
        return ref

    def get(self, ref: BlobRef) -> bytes:
        """See `BlobStore.get`; a damaged cached copy is fetched again.

        Raises:
            BlobMissing, BlobCorrupt, BlobsUnreachable.
        """
        with suppress(BlobMissing, BlobCorrupt):
            content = super().get(ref)
            self._touch(ref)
            return content
        return self._fetch(ref)

    def path(self, ref: BlobRef) -> Path:
        """See `BlobStore.path`; fetches the blob if it is not cached."""
        with suppress(BlobMissing, BlobCorrupt, FileNotFoundError):
            path = super().path(ref)
            self._touch(ref)
            if path.is_file():  # else another process has just deleted it
                return path
        self._download(ref)
        return super().path(ref)

    def checked_path(self, ref: BlobRef) -> Path:
        """See `BlobStore.checked_path`; a damaged cached copy is fetched again."""
        with suppress(BlobMissing, BlobCorrupt, FileNotFoundError):
            return super().checked_path(ref)
        self._download(ref)
        return super().checked_path(ref)

    def has(self, ref: BlobRef) -> bool:
        """Whether a bucket, or an ancestor's folder, has a blob of this name and size."""
        self._check_name(ref)
        return any(bucket.size(ref.sha256) == ref.size for bucket in self.buckets) or self._is_in_also(ref)

    def keep(self, ref: BlobRef) -> None:
        """See `BlobStore.keep`: copied into the run's own prefix."""
        self.put(self.get(ref))

    def release(self, ref: BlobRef) -> None:
        """Delete a blob of this run, in bucket and cache. Append `blob.released` first."""
        self.buckets[0].delete(ref.sha256)
        super().release(ref)

    def own_since(self, ref: BlobRef) -> float | None:
        """Not supported: a bucket does not record when an equal blob is put again. Raises SettingsError."""
        raise _unlocked()

    def release_unless_renewed(self, ref: BlobRef, *, since: float) -> bool:
        """Not supported: a bucket has no lock against a concurrent put. Raises SettingsError."""
        raise _unlocked()

    def _fetch(self, ref: BlobRef) -> bytes:
        self._check_name(ref)
        for bucket in self.buckets:
            content = bucket.get(ref.sha256)
            if content is None:
                continue
            if len(content) != ref.size or digest_hex(content) != ref.sha256:
                raise _damaged_there(ref, bucket, len(content), digest_hex(content))
            super().release(ref)  # a damaged copy
            self._remember(content)
            return content
        raise self._nowhere(ref)

    def _download(self, ref: BlobRef) -> None:
        """Fetch a blob into the cache chunk by chunk, so that memory never holds it whole. Waits for room."""
        self._check_name(ref)
        self._count(ref.size)

        def fetch(bucket: Bucket) -> bool:
            chunks = bucket.read(ref.sha256)
            if chunks is None:
                return False
            BlobStore.release(self, ref)  # a damaged copy
            self._store(ref, partial(_write_checked, chunks, ref, bucket))
            return True

        for bucket in self.buckets:
            if self._when_there_is_room(ref, partial(fetch, bucket)):
                return
        raise self._nowhere(ref)

    def _nowhere(self, ref: BlobRef) -> BlobMissing:
        return BlobMissing(
            f"blob {ref.sha256[:16]}… ({ref.size} bytes) is not in {', '.join(bucket.address for bucket in self.buckets)}, though "
            "an event names it. Unless it was released (hindcast audit shows that), it was deleted by hand or by a rule of "
            "the bucket: restore it from a backup."
        )

    def _remember(self, content: bytes) -> None:
        """Cache a copy, if there is room."""
        self._count(len(content))
        try:
            self._store(BlobRef(digest_hex(content), len(content)), lambda file: file.write(content))
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise

    def _count(self, size_bytes: int) -> None:
        """Count new content, and make room for it if it is time."""
        self._added += size_bytes
        if self._added >= SWEEP_SHARE * self._cache_bytes:
            self._make_room()

    def _make_room(self) -> None:
        """Delete the least recently used blobs until the cache is within its bound."""
        self._added = 0
        files = []
        for path in self._folder.glob("*/*/*"):
            with suppress(OSError):
                status = path.stat()
                files.append((status.st_mtime, status.st_size, path))
        total_bytes = sum(size for _, size, _ in files)
        old_s = time.time() - FRESH_S
        for used_s, size, path in sorted(files):
            if total_bytes <= self._cache_bytes * (1 - SWEEP_SHARE) or used_s > old_s:
                return
            with suppress(FileNotFoundError):
                if path.stat().st_mtime != used_s:
                    continue  # used since we looked
                path.unlink()
            total_bytes -= size

    def _touch(self, ref: BlobRef) -> None:
        with suppress(OSError):
            os.utime(self._path_of(ref))

    def _check_name(self, ref: BlobRef) -> None:
        self._path_of(ref)

    def _is_in_also(self, ref: BlobRef) -> bool:
        relative = self._path_of(ref).relative_to(self._folder)
        paths = (folder / relative for folder in self._also)
        return any(path.is_file() and path.stat().st_size == ref.size for path in paths)


def _write_checked(chunks: "Iterator[Bytes]", ref: BlobRef, bucket: Bucket, file: IO[bytes]) -> None:
    """Write a blob's chunks to a file. Raises BlobCorrupt if they are not what its name promises."""
    digest, size = hashlib.sha256(), 0
    for chunk in chunks:
        digest.update(chunk)
        size += file.write(chunk)
    if size != ref.size or digest.hexdigest() != ref.sha256:
        raise _damaged_there(ref, bucket, size, digest.hexdigest())


def _damaged_there(ref: BlobRef, bucket: Bucket, size: int, digest: str) -> BlobCorrupt:
    return BlobCorrupt(
        f"blob {ref.sha256[:16]}… in {bucket.address} is damaged: it holds {size} bytes with sha256 {digest[:16]}…, its name "
        f"promises {ref.size}. Restore it from a backup."
    )


def _unlocked() -> SettingsError:
    """An error that the check of the settings prevents."""
    return SettingsError(KEEPS_PAGES)


def open_blobs(
    settings: StorageSettings,
    *,
    run: str,
    folder: Path,
    home: Path,
    also: Sequence[Path] = (),
    ancestors: Sequence[Bucket] = (),
) -> BlobStore:
    """The blob store that a run's settings name. `folder`: for this run on this machine.

    Raises:
        SettingsError: `storage.blobs` is no valid address.
    """
    if is_bucket(settings.blobs):
        return RemoteBlobStore(
            folder,
            [Bucket(f"{settings.blobs.rstrip('/')}/{run}", retry_s=settings.full_wait_s), *ancestors],
            cache_bytes=settings.blob_cache_mib * MIB,
            also=also,
            full_wait_s=settings.full_wait_s,
        )
    run_folder = home / Path(settings.blobs).expanduser() / run if settings.blobs else folder
    return BlobStore(run_folder, also=also, full_wait_s=settings.full_wait_s)
