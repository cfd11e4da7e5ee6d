"""Index of the subjects in a closed segment, for families whose subjects end in an entity. It only saves time.

Every episode's end looks up whether the episode has an end already, in a log of months. The index answers for a segment of
300 000 events by a few hundred kilobytes; without a sound index the segment itself is read.

    index = magic (8 bytes) | crc32c (u32) | number (u32) | hashes (u64 each, ascending)

A hash is the first 8 bytes of the sha256 of the subject after `run.<run>.`. A subject without a hash is not in the segment.
"""

import struct
from collections.abc import Collection
from hashlib import sha256
from pathlib import Path

import numpy as np
from google_crc32c import value as crc32c
from numpy.typing import NDArray

from hindcast.core.bounded_read import TooLarge, read_file_bounded
from hindcast.events.archive.manifest import SEGMENTS
from hindcast.events.registry import SUBJECTS
from hindcast.events.subjects import family_of

MAGIC = b"SUBJECTS"
_HEAD = struct.Struct("<8sII")
MOST_BYTES = 256 * 1024 * 1024
"""Size limit of an index; that of a segment with 300 000 events takes less than 3 MiB."""
Hashes = NDArray[np.uint64]


def index_path(folder: Path, first: int) -> Path:
    """Return the path of the index of the segment that begins at this position."""
    return folder / SEGMENTS / f"{first:020d}.idx"


def is_indexed(subject: str) -> bool:
    """Whether an index covers this subject: it covers subjects per entity, and no wildcards.

    If a family of older logs becomes one per entity, the index needs another magic: older indexes lack its subjects.
    """
    declaration = SUBJECTS.get(family_of(subject))
    return declaration is not None and declaration.per_entity and "*" not in subject and ">" not in subject


def hash_of(subject: str) -> int:
    """Hash a subject without its run."""
    return int.from_bytes(sha256(subject.split(".", 2)[2].encode()).digest()[:8], "little")


def encode_index(hashes: Collection[int]) -> bytes:
    """Encode an index file."""
    content = np.array(sorted(hashes), dtype="<u8").tobytes()
    return _HEAD.pack(MAGIC, crc32c(content), len(hashes)) + content


def load_index(folder: Path, first: int) -> Hashes | None:
    """Load the hashes of a closed segment; None without a sound index."""
    try:
        content = read_file_bounded(index_path(folder, first), most_bytes=MOST_BYTES)
        magic, crc, number = _HEAD.unpack_from(content)
    except (FileNotFoundError, struct.error, TooLarge):
        return None
    body = content[_HEAD.size :]
    if magic != MAGIC or len(body) != 8 * number or crc32c(body) != crc:
        return None
    return np.frombuffer(body, dtype="<u8")


def holds(hashes: Hashes, value: int) -> bool:
    """Whether the hashes contain one."""
    index = int(np.searchsorted(hashes, np.uint64(value)))
    return index < len(hashes) and int(hashes[index]) == value
