"""A whole archive, files of the log and blobs, against everything that says how it must be. No broker, no run."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from hindcast.core.errors import BlobCorrupt, BlobMissing
from hindcast.events.archive.check import CheckReport, Defect, check_archive
from hindcast.events.archive.manifest import load
from hindcast.events.envelope import Envelope, Stored
from hindcast.storage.archive.archived_blobs import BlobNeeds
from hindcast.storage.archive.archiver import BLOBS, archive_blobs


class WholeCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What a check of an archive found."""

    log: CheckReport
    pages: bool
    """Whether the archive is to hold snapshots of pages."""
    blobs: int
    """Whole and as named."""
    blob_bytes: int
    not_copied: int
    """Blobs that events name behind the position up to which the archiver has copied: it will."""
    defects: tuple[Defect, ...]
    """Of the log's files and of the blobs."""


def check_whole(
    folder: Path,
    *,
    on_event: Callable[[int], None] = lambda _: None,
    on_blob: Callable[[int], None] = lambda _: None,
) -> WholeCheck:
    """Read everything. `on_event` hears of positions, `on_blob` of how many blobs are left.

    Raises:
        ArchiveMissing, ArchiveDamaged, ArchiveUnknown: already the manifest says nothing.

    """
    state = load(folder).blobs
    needs, behind = BlobNeeds(pages=state.pages), BlobNeeds(pages=state.pages)

    def take(stored: Stored, envelope: Envelope) -> None:
        (needs if stored.position <= state.through else behind).take(stored.position, envelope)
        on_event(stored.position)

    log = check_archive(folder, take=take)
    blobs, defects = archive_blobs(folder), list(log.defects)
    for sha256 in behind.released:
        needs.wanted.pop(sha256, None)
    whole = size = 0
    for left, named in zip(range(len(needs.wanted), 0, -1), needs.wanted.values(), strict=True):
        on_blob(left)
        try:
            blobs.get(named.ref)
            whole, size = whole + 1, size + named.size
        except (BlobMissing, BlobCorrupt) as error:
            where = f"{BLOBS}/{named.sha256[:2]}/{named.sha256[2:4]}/{named.sha256}"
            defects.append(Defect(where=where, position=named.position, what=str(error)))
    return WholeCheck(
        log=log,
        pages=state.pages,
        blobs=whole,
        blob_bytes=size,
        not_copied=len(behind.wanted),
        defects=tuple(defects),
    )
