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


def _holds(place: Path, content: bytes) -> bool:
    """Whether a file has this content; a file of another size is not read."""
    return place.stat().st_size == len(content) and place.read_bytes() == content


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
        place = segment_path(self._folder, segment.first)
        digest = self._manifest.before(index)[1]
        self.digest = RollingDigest(bytes.fromhex(digest))
        self.last = segment.last
        self._subjects.clear()
        try:
            frames = closed_frames(self._folder, self._manifest, index)
            content = place.read_bytes()
            chain = decode_header(content).chain
            for frame in frames:
                check_frame(content, frame, chain=chain)
                chain = frame.chain
                self._frame(place, content, frame)
        except (ArchiveDamaged, NotWhole) as error:
            self._defect(place, segment.first, str(error))
            return
        self.bytes += len(content)
        self._compare_digest(place, segment)
        beside = index_path(self._folder, segment.first)
        if beside.exists() and not _holds(beside, encode_index(self._subjects)):
            self._defect(beside, segment.first, "it is not the segment's; delete it, it is only for speed")

    def open(self) -> None:
        """Check the whole frames of the open segment."""
        manifest = self._manifest
        place = segment_path(self._folder, manifest.next)
        self.digest = RollingDigest(bytes.fromhex(manifest.before(len(manifest.segments))[1]))
        try:
            found = look_at_open(self._folder, manifest)
        except ArchiveDamaged as error:
            self._defect(place, manifest.next, str(error))
            return
        self.bytes += found.end
        self.unfinished_bytes = found.left
        if found.frames:
            content = place.read_bytes()
            for frame in found.frames:
                self._frame(place, content, frame)
                self.open_events += frame.events
                noted = manifest.open
                if noted is not None and frame.last == noted.last and self.digest.value.hex() != noted.digest:
                    self._defect(place, noted.first, "its events have another rolling digest than noted")
            self.last = found.frames[-1].last
        if manifest.open is not None and found.end < manifest.open.bytes:
            lost = found.frames[-1].last + 1 if found.frames else manifest.next
            what = f"positions {lost} to {manifest.open.last} stood in it: {found.reason or 'it is cut'}"
            self._defect(place, lost, what)

    def strangers(self) -> None:
        """Report files that no archiver has written."""
        manifest = self._manifest
        known = {segment_path(self._folder, segment.first).name for segment in manifest.segments}
        known |= {index_path(self._folder, segment.first).name for segment in manifest.segments}
        # a crash may come between writing a segment's index and closing the segment
        known |= {path(self._folder, manifest.next).name for path in (segment_path, index_path)}
        for path in sorted((self._folder / SEGMENTS).iterdir()):
            if path.name not in known and not path.name.startswith("."):
                self._defect(path, manifest.next, "the manifest does not know it")

    def _frame(self, place: Path, content: bytes, frame: Frame) -> None:
        for stored in decode_frame(content[frame.offset : frame.end], frame=frame):
            self.digest.advance(sha256(stored.data).digest())
            self.events += 1
            if is_indexed(stored.subject):
                self._subjects.add(hash_of(stored.subject))
            try:
                envelope = decode_envelope(stored)
            except CorruptEvent as error:
                self._defect(place, stored.position, f"it was damaged before it was archived: {error}")
                continue
            if self._take is not None:
                self._take(stored, envelope)

    def _compare_digest(self, place: Path, segment: Segment) -> None:
        found = self.digest.value.hex()
        if found != segment.digest:
            what = (
                f"its events have the rolling digest {found[:16]}…, the manifest says {segment.digest[:16]}…"
            )
            self._defect(place, segment.first, what)

    def _defect(self, place: Path, position: int, what: str) -> None:
        where = str(place.relative_to(self._folder))
        self.defects.append(Defect(where=where, position=position, what=what))
