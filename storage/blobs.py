"""Content kept beside the log, named by its digest: page snapshots, weights, checkpoints.

A blob is durable before an event names it (file and folders synced, then renamed), stored once however often it is put,
readable by its owner alone, and never trusted: its bytes are checked against its name when they are read.
Letting go of a blob is an event (`blob.released`); an audit accepts a released blob, never a missing one.
All calls are synchronous; async code makes them through `asyncio.to_thread`.
"""

import os
import re
import secrets
from pathlib import Path

from core.errors import BlobCorrupt, BlobMissing
from core.ids import digest_hex
from events.envelope import BlobRef

_DIGEST = re.compile(r"[0-9a-f]{64}")


class BlobStore:
    """A folder of blobs, fanned out by the first two bytes of their digest. Processes may share it."""

    def __init__(self, folder: Path) -> None:
        """The folder is made when the first blob is put."""
        self._folder = folder

    def put(self, content: bytes) -> BlobRef:
        """Store content durably; equal content is stored once."""
        ref = BlobRef(digest_hex(content), len(content))
        place = self._place(ref)
        if not (place.is_file() and place.stat().st_size == ref.size):
            self._make_folders(place.parent)
            temporary = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
            try:
                with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                temporary.rename(place)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
        _sync_folder(
            place.parent
        )  # also when another process has just put it: its rename may not be durable yet
        return ref

    def get(self, ref: BlobRef) -> bytes:
        """The content, checked.

        Raises:
            BlobMissing, BlobCorrupt.

        """
        try:
            content = self._place(ref).read_bytes()
        except FileNotFoundError as error:
            raise self._missing(ref) from error
        if len(content) != ref.size or digest_hex(content) != ref.sha256:
            raise BlobCorrupt(
                f"blob {ref.sha256[:16]}… at {self._place(ref)} is damaged: it holds {len(content)} bytes with sha256 "
                f"{digest_hex(content)[:16]}…, its name promises {ref.size}. Restore it from a backup."
            )
        return content

    def path(self, ref: BlobRef) -> Path:
        """Where the content lies, for readers that map files. Its existence and size are checked, its digest is not.

        Raises:
            BlobMissing, BlobCorrupt.

        """
        place = self._place(ref)
        if not place.is_file():
            raise self._missing(ref)
        size = place.stat().st_size
        if size != ref.size:
            raise BlobCorrupt(
                f"blob {ref.sha256[:16]}… at {place} is damaged: it has {size} bytes, its event says {ref.size}. "
                "Restore it from a backup."
            )
        return place

    def has(self, ref: BlobRef) -> bool:
        """Whether a blob of this name and size is there."""
        place = self._place(ref)
        return place.is_file() and place.stat().st_size == ref.size

    def release(self, ref: BlobRef) -> None:
        """Delete a blob; nothing happens if it is gone already. Append `blob.released` first."""
        self._place(ref).unlink(missing_ok=True)

    def _place(self, ref: BlobRef) -> Path:
        if not _DIGEST.fullmatch(ref.sha256):
            raise BlobCorrupt(f"{ref.sha256!r} is no blob's name: 64 hexadecimal digits are expected")
        return self._folder / ref.sha256[:2] / ref.sha256[2:4] / ref.sha256

    def _make_folders(self, folder: Path) -> None:
        missing = []
        while not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
        for path in reversed(missing):
            path.mkdir(mode=0o700, exist_ok=True)
            _sync_folder(path.parent)

    def _missing(self, ref: BlobRef) -> BlobMissing:
        return BlobMissing(
            f"blob {ref.sha256[:16]}… ({ref.size} bytes) is not in {self._folder}, though an event names it. Was the folder "
            "moved or cleaned? Restore it from a backup."
        )


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
