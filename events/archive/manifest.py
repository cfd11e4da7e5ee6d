"""The manifest of an archive, `manifest.json`: its segments and their digests.

It contains the sha256 of its own content and has exactly one written form, so that a change of any byte is detected.
"""

import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from hindcast.core.bounded_read import TooLarge, read_file_bounded
from hindcast.core.structs import convert, decode_json
from hindcast.events.archive.errors import ArchiveDamaged, ArchiveMissing, ArchiveUnknown
from hindcast.events.archive.format import FORMAT, START
from hindcast.events.codec import UNDECODABLE
from hindcast.events.disk import Disk
from hindcast.events.envelope import BlobRef
from hindcast.events.log.port import Ancestor

NAME = "manifest.json"
SEGMENTS = "segments"
MOST_BYTES = 64 * 1024 * 1024
"""Size limit of a manifest, enough for some 150 000 segments."""
LARGEST_SEGMENT_BYTES = 1024 * 1024 * 1024
"""Size limit of a segment that is read; segments are closed at 32 MiB."""
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A closed segment, which never changes again."""

    first: int
    last: int
    bytes: int
    """Size of the file."""
    sha256: str
    """Digest of the file."""
    chain: str
    """Chain value after its last frame, hexadecimal."""
    digest: str
    """Rolling digest of the log after its last event."""
    families: tuple[str, ...]
    """Families of its events, sorted, so that searches can skip the segment."""


class OpenSegment(msgspec.Struct, frozen=True, kw_only=True):
    """Extent of the growing segment when the archiver last noted it; it may hold more."""

    first: int
    last: int
    bytes: int
    chain: str
    digest: str


class NamedBlob(msgspec.Struct, frozen=True, kw_only=True):
    """A blob that an event names."""

    sha256: str
    size: int
    position: int
    """Position of the event."""

    @property
    def ref(self) -> BlobRef:
        """Reference to the blob."""
        return BlobRef(self.sha256, self.size)


class Blobs(msgspec.Struct, frozen=True, kw_only=True):
    """The archive's copies of the blobs that its events name."""

    through: int = 0
    """Position up to which blobs were copied."""
    pages: bool = True
    """Whether page snapshots were copied."""
    missing: tuple[NamedBlob, ...] = ()
    """Blobs that were named and not released, but not found when they were to be copied."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Content of an archive in names and digests."""

    format: int
    run: str
    first: int
    """First position; 1 unless the archive is the later part of a log."""
    digest: str = START.hex()
    """Rolling digest of the log before that position."""
    lineage: tuple[Ancestor, ...] = ()
    """Runs from which the run was forked, as in `EventLog.lineage`."""
    segments: tuple[Segment, ...] = ()
    open: OpenSegment | None = None
    blobs: Blobs = Blobs()

    @property
    def next(self) -> int:
        """Position after the last closed segment: the name of the open one."""
        return self.segments[-1].last + 1 if self.segments else self.first

    def before(self, index: int) -> tuple[str, str]:
        """Return chain value and digest before the segment of this index; the index after the last is the open one."""
        if index == 0:
            return START.hex(), self.digest
        return self.segments[index - 1].chain, self.segments[index - 1].digest


def segment_path(folder: Path, first: int) -> Path:
    """Return the path of the segment that begins at this position."""
    return folder / SEGMENTS / f"{first:020d}.seg"


def is_archive(folder: Path) -> bool:
    """Whether the folder holds an archive, sound or not."""
    return (folder / NAME).is_file()


def render(manifest: Manifest) -> bytes:
    """Encode a manifest in its one written form."""
    plain = msgspec.to_builtins(manifest)
    signed = {"checksum": sha256(msgspec.json.encode(plain)).hexdigest(), **plain}
    return msgspec.json.format(msgspec.json.encode(signed), indent=1) + b"\n"


def store(folder: Path, manifest: Manifest, disk: Disk) -> None:
    """Write a manifest; after a crash the old one or this one exists."""
    disk.replace(folder / NAME, render(manifest))


def load(folder: Path) -> Manifest:
    """Load and check the manifest of an archive.

    Raises:
        ArchiveMissing: there is none.
        ArchiveDamaged: it differs from what was written.
        ArchiveUnknown: a newer Hindcast wrote it.

    """
    try:
        content = read_file_bounded(folder / NAME, most_bytes=MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ArchiveMissing(
            f"there is no archive in {folder}: it has no {NAME}. Run: hindcast archive RUN {folder}"
        ) from error
    except TooLarge as error:
        raise _damaged(folder, str(error)) from error
    try:
        plain: dict[str, Any] = decode_json(content, dict)
        checksum = plain.pop("checksum", None)
        _check_format(plain.get("format"), folder)
        manifest = convert(plain, Manifest)
    except UNDECODABLE as error:
        raise _damaged(folder, f"it does not decode ({error})") from error
    if render(manifest) != content:
        raise _damaged(folder, f"its content is not what its checksum {str(checksum)[:16]}… was taken of")
    _check_segments(manifest, folder)
    return manifest


def _check_segments(manifest: Manifest, folder: Path) -> None:
    """Raise ArchiveDamaged for malformed digests, and for segments that are not contiguous."""
    parts = (*manifest.segments, *(() if manifest.open is None else (manifest.open,)))
    digests = [manifest.digest, *(value for part in parts for value in (part.chain, part.digest))]
    digests += [segment.sha256 for segment in manifest.segments]
    malformed = next((value for value in digests if not _DIGEST.fullmatch(value)), None)
    if malformed is not None:
        raise _damaged(folder, f"{malformed[:70]!r} is no digest of 64 hexadecimal digits")
    expected_first = manifest.first
    for part in parts:
        if part.first != expected_first or not 1 <= part.first <= part.last < 2**63:
            raise _damaged(
                folder,
                f"a segment of positions {part.first} to {part.last} stands where {expected_first} is due",
            )
        if not 0 < part.bytes <= LARGEST_SEGMENT_BYTES:
            raise _damaged(
                folder, f"a segment has {part.bytes} bytes, at most {LARGEST_SEGMENT_BYTES} are read"
            )
        expected_first = part.last + 1


def _check_format(version: object, folder: Path) -> None:
    if isinstance(version, int) and version > FORMAT:
        raise ArchiveUnknown(
            f"the archive in {folder} has format {version}; this Hindcast reads up to {FORMAT}. Update Hindcast."
        )


def _damaged(folder: Path, problem: str) -> ArchiveDamaged:
    return ArchiveDamaged(
        f"{folder / NAME} is damaged: {problem}. It names every segment and its digest, so that nothing of the archive can be "
        "trusted without it. Restore it from a copy of the archive, or archive the run again into another folder."
    )
