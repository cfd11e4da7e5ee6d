"""The blobs of an archive: those that its events name and do not release later.

A blob that is released before it was copied is skipped. One that is released later is deleted from the archive, too, so that
an archive of months does not keep every version of the weights. Page snapshots are the exception: the run releases them to
free its own disk (`storage.blobs.wanted_pages`), and the archive keeps them.
"""

from collections.abc import Callable, Iterable
from threading import Event

import msgspec

from hindcast.core.errors import BlobCorrupt, BlobMissing
from hindcast.events.archive.manifest import NamedBlob
from hindcast.events.blob_references import RELEASING, blobs_in
from hindcast.events.envelope import BlobRef, Envelope
from hindcast.storage.blobs.store import BlobStore


class BlobNeeds:
    """The blobs that the events so far require. A pure fold; grows until it is settled."""

    def __init__(self, *, pages: bool, needed: Iterable[NamedBlob] = ()) -> None:
        """`pages`: whether page snapshots count. `needed`: blobs that earlier events named and that were not found."""
        self._pages = pages
        self.needed: dict[str, NamedBlob] = {blob.sha256: blob for blob in needed}
        self.released: dict[str, BlobRef] = {}

    def take(self, position: int, envelope: Envelope) -> None:
        """Take in the blobs that the next event names or releases."""
        for blob, page in blobs_in(envelope):
            if envelope.type == RELEASING:
                self.needed.pop(blob.sha256, None)
                if not page:
                    self.released[blob.sha256] = blob
            elif self._pages or not page:
                self.released.pop(blob.sha256, None)
                needed_blob = NamedBlob(sha256=blob.sha256, size=blob.size, position=position)
                self.needed.setdefault(blob.sha256, needed_blob)


class CopyResult(msgspec.Struct, kw_only=True):
    """Counts of what `settle` did."""

    copied: int = 0
    bytes: int = 0
    present: int = 0
    """Blobs that the archive already had."""
    released: int = 0
    """Blobs deleted from the archive."""
    damaged: list[str] = msgspec.field(default_factory=list)
    """Messages about blobs that could not be copied because their bytes do not match their name."""


def settle(
    needs: BlobNeeds,
    source: BlobStore,
    target: BlobStore,
    report: CopyResult,
    *,
    stop: Event,
    on_blob: Callable[[int], None] = lambda _: None,
) -> tuple[NamedBlob, ...]:
    """Copy required blobs, each checked against its digest, and delete released ones; returns the missing ones.

    `on_blob` gets the number of blobs left. Once `stop` is set, it returns early and settles nothing: the next call starts
    again, and skips what is already copied.

    Raises:
        DiskFull: there is no room for them.
    """
    missing: dict[str, NamedBlob] = {}
    for blobs_left, needed_blob in zip(
        range(len(needs.needed), 0, -1), list(needs.needed.values()), strict=True
    ):
        if stop.is_set():
            return ()
        on_blob(blobs_left)
        if target.has(needed_blob.ref):
            report.present += 1
            continue
        try:
            target.put(source.get(needed_blob.ref))
            report.copied += 1
            report.bytes += needed_blob.size
        except BlobMissing:
            missing[needed_blob.sha256] = needed_blob
        except BlobCorrupt as error:
            missing[needed_blob.sha256] = needed_blob
            report.damaged.append(str(error))
    for blob in needs.released.values():
        report.released += target.has(blob)
        target.release(blob)
    needs.needed = missing
    needs.released.clear()
    return tuple(missing.values())
