"""Which subjects a closed segment holds, of the families whose subjects end in an entity: beside it, for speed alone.

"Is there an end of this episode?" is asked at every end, of a log of months. The index answers for a segment of 300 000
events by looking into some hundred kilobytes; where it is missing or damaged the segment itself is read.

    index = magic (8 bytes) | crc32c (u32) | number (u32) | hashes (u64 each, ascending)

A hash is the first 8 bytes of sha256 of the subject behind `run.<run>.`. What is not among them is not in the segment.
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
from hindcast.events.subjects import family_of

MAGIC = b"SUBJECTS"
INDEXED = frozenset({"episode", "episode_end", "verdict", "relabel", "snapshot"})
"""Families whose subjects are all in an index. To add one that older logs hold needs another magic: older files would deny
what is there."""
_HEAD = struct.Struct("<8sII")
MOST_BYTES = 256 * 1024 * 1024
"""Of an index; one of a segment with 300 000 events takes less than 3 MiB."""
Hashes = NDArray[np.uint64]


def index_path(folder: Path, first: int) -> Path:
    """Where the index of the segment lies that begins with this position."""
    return folder / SEGMENTS / f"{first:020d}.idx"


def is_indexed(subject: str) -> bool:
    """Whether the index speaks of this subject; of a wildcard it does not."""
    return family_of(subject) in INDEXED and "*" not in subject and ">" not in subject


def hash_of(subject: str) -> int:
    """What stands for a subject, whichever run's."""
    return int.from_bytes(sha256(subject.split(".", 2)[2].encode()).digest()[:8], "little")


def encode_index(hashes: Collection[int]) -> bytes:
    """The file's content."""
    content = np.array(sorted(hashes), dtype="<u8").tobytes()
    return _HEAD.pack(MAGIC, crc32c(content), len(hashes)) + content


def load_index(folder: Path, first: int) -> Hashes | None:
    """The hashes of a closed segment; None where there is no sound index."""
    try:
        content = read_file_bounded(index_path(folder, first), most_bytes=MOST_BYTES)
        magic, crc, number = _HEAD.unpack_from(content)
    except (FileNotFoundError, struct.error, TooLarge):
        return None
    body = content[_HEAD.size :]
    if magic != MAGIC or len(body) != 8 * number or crc32c(body) != crc:
        return None
    return np.frombuffer(body, dtype="<u8")


def holds(hashes: Hashes, wanted: int) -> bool:
    """Whether a subject's hash is among them."""
    at = int(np.searchsorted(hashes, np.uint64(wanted)))
    return at < len(hashes) and int(hashes[at]) == wanted
