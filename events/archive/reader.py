"""Reader of an archive's files; each file is checked before its content is used. Blocking; thread-safe.

A closed segment must have the size and sha256 in the manifest and continue the chain of the one before. In the open segment
every frame is checked. It must hold at least what the archiver noted, and bytes after its last whole frame do not count yet.
"""

from bisect import bisect_left
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import NamedTuple, NoReturn

from hindcast.core.bounded_read import TooLarge, read_bounded, read_file_bounded
from hindcast.events.archive.errors import ArchiveDamaged, BeyondArchive
from hindcast.events.archive.format import (
    Frame,
    Header,
    NotWhole,
    decode_frame,
    decode_header,
    frame_at,
    frames_from,
)
from hindcast.events.archive.index import Hashes, hash_of, holds, is_indexed, load_index
from hindcast.events.archive.manifest import (
    LARGEST_SEGMENT_BYTES,
    NAME,
    Manifest,
    Segment,
    load,
    segment_path,
)
from hindcast.events.envelope import Stored

CACHED_FRAMES = 4
"""Number of decoded frames in the cache: several readers are often close to each other."""


class OpenSegmentContent(NamedTuple):
    """The whole frames of the open segment, and what follows them."""

    frames: list[Frame]
    end: int
    """Offset after the last whole frame; 0 if even the header is not whole."""
    chain: bytes
    """Chain value at `end`."""
    left: int
    """Number of bytes after `end`."""
    reason: str
    """Why they are not a whole frame."""


class ArchiveReader:
    """Reads an archive that may still grow."""

    def __init__(self, folder: Path) -> None:
        """Open it. Raises ArchiveMissing, ArchiveDamaged or ArchiveUnknown if there is no sound archive."""
        self.folder = folder
        self._lock = Lock()
        self._seen = _signature(folder)
        self.manifest = load(folder)
        """Manifest as last read."""
        self._closed: dict[int, list[Frame]] = {}
        """Frames of the closed segments read so far, by first position."""
        self._open = self._look_at_open(None)
        self._cache: dict[tuple[int, int], list[Stored]] = {}
        self._indexes: dict[int, Hashes | None] = {}
        """Indexes of closed segments, by first position; None without a sound index."""
        self._hashed: tuple[int, int, set[int]] = (0, 0, set())
        """For the open segment: first position, offset up to which it is hashed, hashes of its subjects."""
        self._hashed_up_to: tuple[int, int, set[int]] = (0, 0, set())
        """For one segment: first position, position up to which it is hashed, hashes of its subjects."""

    @property
    def first(self) -> int:
        """Position of the first event, if the archive is not empty."""
        return self.manifest.first

    @property
    def last(self) -> int:
        """Position of the last known event; `first - 1` in an empty archive."""
        frames = self._open.frames
        return frames[-1].last if frames else self.manifest.next - 1

    def refresh(self) -> int:
        """Read how far the archive has grown; return the last position.

        Raises:
            ArchiveDamaged: the manifest or the open segment is damaged.

        """
        with self._lock:
            open_segment: OpenSegmentContent | None = self._open
            signature = _signature(self.folder)
            if signature != self._seen:
                manifest = load(self.folder)
                open_segment = open_segment if manifest.next == self.manifest.next else None
                self.manifest, self._seen = manifest, signature
            self._open = self._look_at_open(open_segment)
            return self.last

    def following(self, position: int) -> list[Stored]:
        """Read some events that follow a position, at most a frame; empty at the known end.

        Raises:
            BeyondArchive: the position is before the archive's beginning.
            ArchiveDamaged: the segment is damaged.

        """
        with self._lock:
            first = position + 1
            if first < self.first:
                raise BeyondArchive(
                    f"the archive in {self.folder} begins at position {self.first} of run {self.manifest.run}: position "
                    f"{first} is not in it. Begin reading after position {self.first - 1}, or use the archive or run that "
                    "holds what stands before."
                )
            if first > self.last:
                return []
            segment, frames = self._frames_around(first)
            events = self._decode(segment, next(frame for frame in frames if frame.last >= first))
            return events[first - events[0].position :]

    def backwards(self, subject: str, *, until: int | None = None) -> Iterator[Stored]:
        """Yield events backwards from the end, or from `until`, without segments that lack the subject."""
        family = _literal_family(subject)
        subject_hash = hash_of(subject) if family is not None and is_indexed(subject) else None
        with self._lock:
            last = self.last if until is None else min(until, self.last)
        while last >= self.first:
            with self._lock:
                first = self._segment_of(last)
                may_hold = self._may_hold(first, family, subject_hash, until=last)
                frames = self._frames_around(last)[1] if may_hold else []
            for frame in reversed(frames):
                if frame.first <= last:
                    with self._lock:
                        events = self._decode(first, frame)
                    yield from (stored for stored in reversed(events) if stored.position <= last)
            last = first - 1

    def _may_hold(self, first: int, family: str | None, subject_hash: int | None, *, until: int) -> bool:
        """Whether a segment may hold an event of a family, and of a subject by its hash, up to a position."""
        if first == self.manifest.next:
            last, may_hold = self.last, subject_hash is None or subject_hash in self._open_hashes()
        else:
            index = bisect_left(self.manifest.segments, first, key=lambda segment: segment.first)
            last = self.manifest.segments[index].last
            if family is not None and family not in self.manifest.segments[index].families:
                return False
            may_hold = subject_hash is None or self._closed_may_hold(first, subject_hash)
        return may_hold and (
            subject_hash is None or last <= until or subject_hash in self._hashes_up_to(first, until)
        )

    def _closed_may_hold(self, first: int, subject_hash: int) -> bool:
        if first not in self._indexes:
            self._indexes[first] = load_index(self.folder, first)
        hashes = self._indexes[first]
        return hashes is None or holds(hashes, subject_hash)

    def _hashes_up_to(self, first: int, until: int) -> set[int]:
        """Return the hashes of a segment's subjects up to a position: a fork asks repeatedly for the same one."""
        if self._hashed_up_to[:2] != (first, until):
            frames = [frame for frame in self._frames_around(until)[1] if frame.first <= until]
            events = (stored for frame in frames for stored in self._decode(first, frame))
            subjects = (stored.subject for stored in events if stored.position <= until)
            self._hashed_up_to = (
                first,
                until,
                {hash_of(subject) for subject in subjects if is_indexed(subject)},
            )
        return self._hashed_up_to[2]

    def _open_hashes(self) -> set[int]:
        """Return the hashes of the open segment's subjects; each frame is read once."""
        if self._hashed[0] != self.manifest.next:
            self._hashed = (self.manifest.next, 0, set())
        first, end, hashes = self._hashed
        for frame in self._open.frames:
            if frame.offset >= end:
                subjects = (stored.subject for stored in self._decode(first, frame))
                hashes.update(hash_of(subject) for subject in subjects if is_indexed(subject))
        self._hashed = (first, self._open.end, hashes)
        return hashes

    def _segment_of(self, position: int) -> int:
        """Return the first position of the segment that holds a position."""
        if position >= self.manifest.next:
            return self.manifest.next
        index = bisect_left(self.manifest.segments, position, key=lambda segment: segment.last)
        return self.manifest.segments[index].first

    def _frames_around(self, position: int) -> tuple[int, list[Frame]]:
        """Return the first position and the frames of the segment that holds a position."""
        first = self._segment_of(position)
        if first == self.manifest.next:
            return first, self._open.frames
        if first not in self._closed:
            index = bisect_left(self.manifest.segments, first, key=lambda segment: segment.first)
            self._closed[first] = closed_frames(self.folder, self.manifest, index)
        return first, self._closed[first]

    def _decode(self, segment: int, frame: Frame) -> list[Stored]:
        key = (segment, frame.offset)
        events = self._cache.pop(key, None)
        if events is None:
            try:
                with segment_path(self.folder, segment).open("rb") as file:
                    file.seek(frame.offset)
                    events = decode_frame(file.read(frame.size), frame=frame)
            except (NotWhole, FileNotFoundError) as error:
                raise ArchiveDamaged(
                    f"the segment {segment_path(self.folder, segment)} is damaged at positions {frame.first} to "
                    f"{frame.last}: {error}. It changed after it was checked. Restore it from a copy of the archive."
                ) from error
        self._cache[key] = events
        while len(self._cache) > CACHED_FRAMES:
            self._cache.pop(next(iter(self._cache)))
        return events

    def _look_at_open(self, known: OpenSegmentContent | None) -> OpenSegmentContent:
        """Read the open segment.

        Raises:
            ArchiveDamaged: it holds less than the archiver noted.

        """
        content = look_at_open(self.folder, self.manifest, known=known)
        recorded = self.manifest.open
        if recorded is not None and content.end < recorded.bytes:
            refuse_open(self.folder, self.manifest, content)
        return content


def closed_frames(folder: Path, manifest: Manifest, index: int) -> list[Frame]:
    """Return the frames of a closed segment after checking its file against the manifest.

    Raises:
        ArchiveDamaged: the file does not match.

    """
    segment = manifest.segments[index]
    try:
        path = segment_path(folder, segment.first)
        size = path.stat().st_size
        if size != segment.bytes:
            _refuse(folder, segment, f"it has {size} bytes, the manifest says {segment.bytes}")
        content = read_file_bounded(path, most_bytes=segment.bytes)
    except FileNotFoundError:
        _refuse(folder, segment, "its file is missing")
    except TooLarge as error:
        _refuse(folder, segment, str(error))
    content_digest = sha256(content).hexdigest()
    if content_digest != segment.sha256:
        _refuse(
            folder, segment, f"its sha256 is {content_digest[:16]}…, the manifest says {segment.sha256[:16]}…"
        )
    before, digest = manifest.before(index)
    try:
        header, offset, _ = decode_header(content)
        frames = []
        while offset < len(content):
            frames.append(frame_at(content, offset))
            offset = frames[-1].end
    except NotWhole as error:
        _refuse(folder, segment, str(error))
    identity = (header.run, header.first, header.chain.hex(), header.digest.hex())
    if identity != (manifest.run, segment.first, before, digest):
        _refuse(folder, segment, "it belongs to another archive, or to another place in this one")
    if not frames or (frames[-1].chain.hex(), frames[-1].last) != (segment.chain, segment.last):
        _refuse(folder, segment, f"it does not end as the manifest says, with position {segment.last}")
    return frames


def _refuse(folder: Path, segment: Segment, problem: str) -> NoReturn:
    raise ArchiveDamaged(
        f"the segment {segment_path(folder, segment.first)} (positions {segment.first} to {segment.last}) is damaged: {problem}. "
        "Restore that file from a copy of the archive, or archive the run again into another folder."
    )


def look_at_open(
    folder: Path, manifest: Manifest, *, known: OpenSegmentContent | None = None
) -> OpenSegmentContent:
    """Read the whole frames of the open segment, whatever follows them; `known` is the content read before.

    Raises:
        ArchiveDamaged: the segment belongs to another archive or place.

    """
    path = segment_path(folder, manifest.next)
    before = manifest.before(len(manifest.segments))[0]
    previous = known or OpenSegmentContent([], 0, bytes.fromhex(before), 0, "")
    try:
        with path.open("rb") as file:
            file.seek(previous.end)
            content = read_bounded(file, most_bytes=LARGEST_SEGMENT_BYTES, content_name=str(path))
    except TooLarge as error:
        raise ArchiveDamaged(
            f"the open segment {error}. Restore the folder from a copy of the archive."
        ) from error
    except FileNotFoundError:
        return OpenSegmentContent([], 0, bytes.fromhex(before), 0, "it is missing")
    frames, end, after, offset, reason = list(previous.frames), previous.end, previous.chain, 0, ""
    try:
        if end == 0:
            header, offset, after = decode_header(content)
            _check_place(path, header, manifest)
        for frame in frames_from(
            content, offset, first=frames[-1].last + 1 if frames else manifest.next, chain=after
        ):
            frames.append(frame._replace(offset=end + frame.offset))
            offset, after = frame.end, frame.chain
    except NotWhole as error:
        reason = str(error)
    return OpenSegmentContent(frames, end + offset, after, len(content) - offset, reason)


def _check_place(path: Path, header: Header, manifest: Manifest) -> None:
    before, digest = manifest.before(len(manifest.segments))
    identity = (header.run, header.first, header.chain.hex(), header.digest.hex())
    if identity != (manifest.run, manifest.next, before, digest):
        raise ArchiveDamaged(
            f"the segment {path} belongs to another archive, or to another place in this one: it says run "
            f"{header.run!r} from position {header.first}. Restore the folder from a copy of the archive, or archive the "
            "run again into another folder."
        )


def refuse_open(folder: Path, manifest: Manifest, content: OpenSegmentContent) -> NoReturn:
    """Raise ArchiveDamaged: the open segment lost events that were noted."""
    assert manifest.open is not None
    first_lost = content.frames[-1].last + 1 if content.frames else manifest.open.first
    path = segment_path(folder, manifest.open.first)
    raise ArchiveDamaged(
        f"the open segment {path} is damaged from position {first_lost} on, though positions up to {manifest.open.last} stood in "
        f"it: {content.reason or 'it is shorter than noted'}. Restore it from a copy; or, while the run's log is still there, "
        f"delete that file and run: hindcast archive {manifest.run} {folder}"
    )


def _signature(folder: Path) -> tuple[int, int, int]:
    """Return a value that changes whenever the manifest is replaced."""
    try:
        status = (folder / NAME).stat()
    except (FileNotFoundError, NotADirectoryError):
        return (0, 0, 0)
    return (status.st_ino, status.st_mtime_ns, status.st_size)


def _literal_family(subject: str) -> str | None:
    """Return the one family that a subject or wildcard covers; None if several."""
    tokens = subject.split(".")
    return tokens[2] if len(tokens) > 2 and tokens[2] not in ("*", ">") else None
