"""Check of a whole archive: every byte of every file against every digest, without a broker.

It continues after damage, to report all of it. `hindcast audit` also checks what the events mean.
"""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import msgspec

from hindcast.core.errors import CorruptEvent
from hindcast.events.archive.errors import ArchiveDamaged
from hindcast.events.archive.format import Frame, NotWhole, check_frame, decode_frame, decode_header
from hindcast.events.archive.index import encode_index, hash_of, index_path, is_indexed
from hindcast.events.archive.manifest import SEGMENTS, Manifest, Segment, load, segment_path
from hindcast.events.archive.reader import closed_frames, look_at_open
from hindcast.events.codec import decode_envelope
from hindcast.events.envelope import Envelope, Stored
from hindcast.events.log.hash_chain import RollingDigest

Take = Callable[[Stored, Envelope], None]


class Defect(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an archive that differs from what was written."""

    where: str
    """The file, relative to the archive's folder."""
    position: int
    """First affected position."""
    what: str


class CheckReport(msgspec.Struct, frozen=True, kw_only=True):
    """Result of checking an archive."""

    run: str
    first: int
    last: int
    events: int
    """Number of whole events."""
    segments: int
    bytes: int
    """Bytes of the segments' files."""
    digest: str
    """Rolling digest of the log up to `last`, as in `batch.planned`; empty if there are defects."""
    unfinished_bytes: int
    """Bytes after the last whole frame: the rest of a crash, or a frame being written."""
    defects: tuple[Defect, ...]


def check_archive(folder: Path, *, take: Take | None = None) -> CheckReport:
    """Check a whole archive. `take` gets every whole event, in order.

    Raises:
        ArchiveMissing, ArchiveDamaged, ArchiveUnknown: there is no sound manifest.

    """
    manifest = load(folder)
    check = _Check(folder, manifest, take)
    for index in range(len(manifest.segments)):
        check.closed(index)
    check.open()
    check.strangers()
    return CheckReport(
        run=manifest.run,
        first=manifest.first,
        last=check.last,
        events=check.events,
        segments=len(manifest.segments) + bool(check.open_events),
        bytes=check.bytes,
        digest="" if check.defects else check.digest.value.hex(),
        unfinished_bytes=check.unfinished_bytes,
        defects=tuple(check.defects),
    )


def check_segment(folder: Path, index: int) -> Defect | None:
    """Check one closed segment; return its first defect, if any.

    Raises:
        ArchiveMissing, ArchiveDamaged, ArchiveUnknown: there is no sound manifest.

    """
    check = _Check(folder, load(folder), None)
    check.closed(index)
    return check.defects[0] if check.defects else None


def _holds(path: Path, content: bytes) -> bool:
    """Whether a file has this content; a file of another size is not read."""
    return path.stat().st_size == len(content) and path.read_bytes() == content


class _Check:
    """One pass over an archive's segments."""

    def __init__(self, folder: Path, manifest: Manifest, take: Take | None) -> None:
        self._folder = folder
        self._manifest = manifest
        self._take = take
        self._subjects: set[int] = set()
        self.defects: list[Defect] = []
        self.digest = RollingDigest(bytes.fromhex(manifest.digest))
        self.last = manifest.first - 1
        self.events = self.open_events = 0
        self.bytes = self.unfinished_bytes = 0

    def closed(self, index: int) -> None:
        """Check a closed segment against the manifest, and every frame and digest in it."""
        segment = self._manifest.segments[index]
        path = segment_path(self._folder, segment.first)
        digest = self._manifest.before(index)[1]
        self.digest = RollingDigest(bytes.fromhex(digest))
        self.last = segment.last
        self._subjects.clear()
        try:
            frames = closed_frames(self._folder, self._manifest, index)
            content = path.read_bytes()
            chain = decode_header(content).chain
            for frame in frames:
                check_frame(content, frame, chain=chain)
                chain = frame.chain
                self._frame(path, content, frame)
        except (ArchiveDamaged, NotWhole) as error:
            self._defect(path, segment.first, str(error))
            return
        self.bytes += len(content)
        self._compare_digest(path, segment)
        index_file = index_path(self._folder, segment.first)
        if index_file.exists() and not _holds(index_file, encode_index(self._subjects)):
            self._defect(
                index_file, segment.first, "it is not the segment's; delete it, it is only for speed"
            )

    def open(self) -> None:
        """Check the whole frames of the open segment."""
        manifest = self._manifest
        path = segment_path(self._folder, manifest.next)
        self.digest = RollingDigest(bytes.fromhex(manifest.before(len(manifest.segments))[1]))
        try:
            content_read = look_at_open(self._folder, manifest)
        except ArchiveDamaged as error:
            self._defect(path, manifest.next, str(error))
            return
        self.bytes += content_read.end
        self.unfinished_bytes = content_read.left
        if content_read.frames:
            content = path.read_bytes()
            for frame in content_read.frames:
                self._frame(path, content, frame)
                self.open_events += frame.events
                recorded = manifest.open
                if (
                    recorded is not None
                    and frame.last == recorded.last
                    and self.digest.value.hex() != recorded.digest
                ):
                    self._defect(path, recorded.first, "its events have another rolling digest than noted")
            self.last = content_read.frames[-1].last
        if manifest.open is not None and content_read.end < manifest.open.bytes:
            first_lost = content_read.frames[-1].last + 1 if content_read.frames else manifest.next
            problem = f"positions {first_lost} to {manifest.open.last} stood in it: {content_read.reason or 'it is cut'}"
            self._defect(path, first_lost, problem)

    def strangers(self) -> None:
        """Report files that no archiver has written."""
        manifest = self._manifest
        names = {segment_path(self._folder, segment.first).name for segment in manifest.segments}
        names |= {index_path(self._folder, segment.first).name for segment in manifest.segments}
        # a crash may come between writing a segment's index and closing the segment
        names |= {path(self._folder, manifest.next).name for path in (segment_path, index_path)}
        for path in sorted((self._folder / SEGMENTS).iterdir()):
            if path.name not in names and not path.name.startswith("."):
                self._defect(path, manifest.next, "the manifest does not know it")

    def _frame(self, path: Path, content: bytes, frame: Frame) -> None:
        for stored in decode_frame(content[frame.offset : frame.end], frame=frame):
            self.digest.advance(sha256(stored.data).digest())
            self.events += 1
            if is_indexed(stored.subject):
                self._subjects.add(hash_of(stored.subject))
            try:
                envelope = decode_envelope(stored)
            except CorruptEvent as error:
                self._defect(path, stored.position, f"it was damaged before it was archived: {error}")
                continue
            if self._take is not None:
                self._take(stored, envelope)

    def _compare_digest(self, path: Path, segment: Segment) -> None:
        digest = self.digest.value.hex()
        if digest != segment.digest:
            problem = (
                f"its events have the rolling digest {digest[:16]}…, the manifest says {segment.digest[:16]}…"
            )
            self._defect(path, segment.first, problem)

    def _defect(self, path: Path, position: int, problem: str) -> None:
        relative_path = str(path.relative_to(self._folder))
        self.defects.append(Defect(where=relative_path, position=position, what=problem))
