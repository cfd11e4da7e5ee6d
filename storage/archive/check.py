"""Checks a whole archive, log files and blobs. Needs no broker and no run."""

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
    """Result of a check of an archive."""

    log: CheckReport
    pages: bool
    """Whether the archive is to hold page snapshots."""
    blobs: int
    """Intact blobs."""
    blob_bytes: int
    not_copied: int
    """Blobs named after the position that the archiver has copied up to; it has yet to copy them."""
    defects: tuple[Defect, ...]
    """Defects of log files and blobs."""


def check_whole(
    folder: Path,
    *,
    on_event: Callable[[int], None] = lambda _: None,
    on_blob: Callable[[int], None] = lambda _: None,
) -> WholeCheck:
    """Read and check everything. `on_event` gets positions, `on_blob` the number of blobs left.

    Raises:
        ArchiveMissing, ArchiveDamaged, ArchiveUnknown: the manifest cannot be read.
    """
    state = load(folder).blobs
    needs, behind = BlobNeeds(pages=state.pages), BlobNeeds(pages=state.pages)

    def take(stored: Stored, envelope: Envelope) -> None:
        (needs if stored.position <= state.through else behind).take(stored.position, envelope)
        on_event(stored.position)

    log = check_archive(folder, take=take)
    blobs, defects = archive_blobs(folder), list(log.defects)
    for sha256 in behind.released:
        needs.needed.pop(sha256, None)
    intact = size = 0
    for blobs_left, blob in zip(range(len(needs.needed), 0, -1), needs.needed.values(), strict=True):
        on_blob(blobs_left)
        try:
            blobs.get(blob.ref)
            intact, size = intact + 1, size + blob.size
        except (BlobMissing, BlobCorrupt) as error:
            path = f"{BLOBS}/{blob.sha256[:2]}/{blob.sha256[2:4]}/{blob.sha256}"
            defects.append(Defect(where=path, position=blob.position, what=str(error)))
    return WholeCheck(
        log=log,
        pages=state.pages,
        blobs=intact,
        blob_bytes=size,
        not_copied=len(behind.needed),
        defects=tuple(defects),
    )
