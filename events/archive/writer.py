"""Writer of an archive: one process at a time; each batch is durable before the next.

A batch is appended to the open segment as whole frames and synced. A segment that reaches its size is closed by naming it in
the manifest, and the next one begins. Written data never changes: after a crash, bytes after the last whole frame are cut
off, and writing continues there. `note` records in the manifest how far the open segment has grown, so that a later loss of
its end is detected; it need not be exact.
"""

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Self

import msgspec
import structlog

from hindcast.core.errors import DiskFull, ForeignLog
from hindcast.events.archive.errors import ArchiveBusy
from hindcast.events.archive.format import (
    FORMAT,
    START,
    Header,
    decode_frame,
    encode_frame,
    encode_header,
    split,
)
from hindcast.events.archive.index import encode_index, hash_of, index_path, is_indexed
from hindcast.events.archive.manifest import (
    NAME,
    SEGMENTS,
    Blobs,
    Manifest,
    OpenSegment,
    Segment,
    is_archive,
    load,
    segment_path,
    store,
)
from hindcast.events.archive.reader import ArchiveReader, look_at_open, refuse_open
from hindcast.events.disk import PRIVATE_FILE, Disk
from hindcast.events.envelope import Stored
from hindcast.events.log.hash_chain import RollingDigest
from hindcast.events.log.port import Ancestor
from hindcast.events.subjects import family_of

SEGMENT_BYTES = 32 * 1024 * 1024
LOCK = "archive.lock"
_log = structlog.get_logger(__name__)


class ArchiveWriter:
    """The one writer of an archive, made by `open`. Blocking; thread-safe."""

    def __init__(
        self, folder: Path, manifest: Manifest, *, segment_bytes: int, disk: Disk, lock: int
    ) -> None:
        self.folder = folder
        self.manifest = manifest
        """Manifest as last written."""
        self._segment_bytes = segment_bytes
        self._disk = disk
        self._lock_file: int | None = lock
        self._guard = Lock()
        self._file: int | None = None
        self._bytes = 0
        self._content = sha256()
        self._chain = START
        self._digest = RollingDigest()
        self._families: set[str] = set()
        self._subjects: set[int] = set()
        """Hashes for the index. Families and hashes are those of the open segment."""
        self.last = manifest.next - 1
        """Position of the last durable event; `first - 1` in an empty archive."""
        self.last_digest = b""
        """sha256 of that event's stored bytes; empty in an empty archive."""

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        run: str,
        first: int = 1,
        digest: bytes = START,
        lineage: tuple[Ancestor, ...] = (),
        segment_bytes: int = SEGMENT_BYTES,
        disk: Disk | None = None,
    ) -> Self:
        """Open the archive of a run with these ancestors; make it if there is none.

        A new archive begins at position `first`; `digest` is the rolling digest of the log before.

        Raises:
            ArchiveBusy: another process writes it.
            ForeignLog: the folder holds another run's archive, or something else.
            ArchiveDamaged: the open segment lost events that were noted.

        """
        disk = disk or Disk()
        if not is_archive(folder):
            _require_empty(folder)
        disk.make_folder(folder / SEGMENTS)
        lock = _hold(folder)
        try:
            if is_archive(folder):
                manifest = load(folder)
            else:
                manifest = Manifest(format=FORMAT, run=run, first=first, digest=digest.hex(), lineage=lineage)
                store(folder, manifest, disk)
            if manifest.run != run:
                raise ForeignLog(
                    f"{folder} holds the archive of run {manifest.run!r}, not of {run!r}. Choose another folder."
                )
            if manifest.lineage != lineage:
                raise ForeignLog(
                    f"{folder} holds the archive of another run {run!r}: that one is {_descent(manifest.lineage)}, this one "
                    f"{_descent(lineage)}. Choose another folder."
                )
            writer = cls(folder, manifest, segment_bytes=segment_bytes, disk=disk, lock=lock)
            writer._recover()
        except BaseException:
            os.close(lock)
            raise
        return writer

    @property
    def first(self) -> int:
        """First position of the archive."""
        return self.manifest.first

    @property
    def digest(self) -> bytes:
        """Rolling digest of the log up to `last`."""
        return self._digest.value

    def append(self, batch: Sequence[Stored]) -> None:
        """Append events that follow the last one; they are durable when this returns.

        Raises:
            ForeignLog: they do not follow the last event.
            DiskFull: there is no room; nothing of the batch was stored.

        """
        with self._guard:
            assert self._lock_file is not None, "closed: another process may be writing"
            for expected, stored in enumerate(batch, self.last + 1):
                if stored.position != expected:
                    raise ForeignLog(
                        f"position {stored.position} was to be archived in {self.folder} where {expected} is due: the log of run "
                        f"{self.manifest.run} has a gap, or is another one."
                    )
            if batch:
                self._append(batch)

    def _append(self, batch: Sequence[Stored]) -> None:
        with self._worded():
            file = self._file if self._file is not None else self._begin()
            frames, chain = [], self._chain
            for events in split(batch):
                frame, chain = encode_frame(events, chain=chain)
                frames.append(frame)
            content = b"".join(frames)
            try:
                self._disk.write(file, content)
                self._disk.sync(file)
            except OSError:
                self._disk.cut(file, self._bytes)
                raise
        self._bytes += len(content)
        self._content.update(content)
        self._chain = chain
        for stored in batch:
            self._take_in(stored)
        if self._bytes >= self._segment_bytes:
            with self._worded():
                self._close_segment()

    def _take_in(self, stored: Stored) -> None:
        """Add an event of the open segment to the writer's state."""
        self.last, self.last_digest = stored.position, sha256(stored.data).digest()
        self._digest.advance(self.last_digest)
        self._families.add(family_of(stored.subject))
        if is_indexed(stored.subject):
            self._subjects.add(hash_of(stored.subject))

    @contextmanager
    def _worded(self) -> Iterator[None]:
        """Turn an error of a full or failing disk into DiskFull."""
        try:
            yield
        except OSError as error:
            raise DiskFull(
                f"the archive in {self.folder} cannot be written: {error.strerror}. It holds run {self.manifest.run} up to "
                f"position {self.last}, and nothing is lost: make room on that disk, and archiving continues there."
            ) from error

    def note(self, blobs: Blobs | None = None) -> None:
        """Record the extent of the open segment, and of the blobs, in the manifest; a no-op after `close`."""
        with self._guard:
            if self._lock_file is None:
                return
            mark = None
            if self._file is not None and self.last >= self.manifest.next:
                mark = OpenSegment(
                    first=self.manifest.next,
                    last=self.last,
                    bytes=self._bytes,
                    chain=self._chain.hex(),
                    digest=self._digest.value.hex(),
                )
            changed = msgspec.structs.replace(
                self.manifest, open=mark, blobs=blobs if blobs is not None else self.manifest.blobs
            )
            if changed != self.manifest:
                with self._worded():
                    self._store(changed)

    def close(self) -> None:
        """Release the archive for another process. All appended events are durable already."""
        with self._guard:
            for file in (self._file, self._lock_file):
                if file is not None:
                    os.close(file)
            self._file = self._lock_file = None

    def _store(self, manifest: Manifest) -> None:
        store(self.folder, manifest, self._disk)
        self.manifest = manifest

    def _recover(self) -> None:
        """Continue after the last whole frame of the open segment."""
        content_read = look_at_open(self.folder, self.manifest)
        path = segment_path(self.folder, self.manifest.next)
        recorded = self.manifest.open
        if recorded is not None and content_read.end < recorded.bytes:
            if content_read.end + content_read.left >= recorded.bytes:
                # altered, not cut: after the damage there may be events that exist nowhere else
                refuse_open(self.folder, self.manifest, content_read)
            _log.warning(
                "the open segment lost its end: its events are taken from the log again", segment=path.name
            )
            self._store(msgspec.structs.replace(self.manifest, open=None))
        self._digest = RollingDigest(bytes.fromhex(self.manifest.before(len(self.manifest.segments))[1]))
        if content_read.end == 0:
            if self.manifest.segments:
                self.last_digest = self._last_event_of_closed()
            return
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND)
        if content_read.left:
            _log.warning(
                "what stood behind the last whole frame is cut off",
                segment=path.name,
                bytes=content_read.left,
                reason=content_read.reason,
            )
            self._disk.cut(self._file, content_read.end)
        content = path.read_bytes()
        self._bytes, self._chain, self._content = content_read.end, content_read.chain, sha256(content)
        for frame in content_read.frames:
            for stored in decode_frame(content[frame.offset : frame.end], frame=frame):
                self._take_in(stored)
        if not content_read.frames and self.manifest.segments:
            self.last_digest = self._last_event_of_closed()
        if self._bytes >= self._segment_bytes and content_read.frames:
            self._close_segment()

    def _last_event_of_closed(self) -> bytes:
        return sha256(ArchiveReader(self.folder).following(self.manifest.next - 2)[-1].data).digest()

    def _begin(self) -> int:
        """Begin a new open segment with its header."""
        before, digest = self.manifest.before(len(self.manifest.segments))
        header = Header(
            format=FORMAT,
            run=self.manifest.run,
            first=self.manifest.next,
            chain=bytes.fromhex(before),
            digest=bytes.fromhex(digest),
        )
        opening, chain = encode_header(header)
        path = segment_path(self.folder, self.manifest.next)
        self._disk.replace(path, opening)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND)
        self._bytes, self._chain, self._content = len(opening), chain, sha256(opening)
        return self._file

    def _close_segment(self) -> None:
        """Close the open segment by naming it in the manifest; it never changes again."""
        closed = Segment(
            first=self.manifest.next,
            last=self.last,
            bytes=self._bytes,
            sha256=self._content.hexdigest(),
            chain=self._chain.hex(),
            digest=self._digest.value.hex(),
            families=tuple(sorted(self._families)),
        )
        self._disk.replace(index_path(self.folder, closed.first), encode_index(self._subjects))
        self._store(
            msgspec.structs.replace(self.manifest, segments=(*self.manifest.segments, closed), open=None)
        )
        assert self._file is not None
        os.close(self._file)
        self._file = None
        self._families.clear()
        self._subjects.clear()


def _descent(lineage: tuple[Ancestor, ...]) -> str:
    return f"a fork of {lineage[-1].run} at position {lineage[-1].until}" if lineage else "no fork"


def _hold(folder: Path) -> int:
    """Lock the archive for this process; return the lock's descriptor.

    Raises:
        ArchiveBusy: another process holds it.

    """
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(lock, 20, 0).decode(errors="replace").strip() or "another process"
        os.close(lock)
        raise ArchiveBusy(
            f"another process (pid {holder}) writes the archive in {folder}; two would ruin it. Wait for it or stop it, or "
            "choose another folder."
        ) from error
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)
    return lock


def _require_empty(folder: Path) -> None:
    """Require that a new archive's folder is empty, except for the files of an interrupted first start.

    Raises:
        ForeignLog: it holds something else.

    """
    if not folder.exists():
        return
    own_names = {LOCK, SEGMENTS, f".{NAME}.new"}
    foreign = sorted(path.name for path in folder.iterdir() if path.name not in own_names)
    if foreign:
        raise ForeignLog(
            f"{folder} is no archive and not empty: it holds {', '.join(foreign[:3])}. Choose another folder."
        )
    if any((folder / SEGMENTS).glob("*")):
        raise ForeignLog(
            f"{folder} holds segments but no {NAME}. Restore it from a copy of the archive, or choose another folder."
        )
