"""The blobs of an archive: those that its events name and do not let go of again.

A blob that is named and released before it was ever copied is passed over; one that is released later leaves the archive
too, so that an archive of months does not keep every version of the weights. Not so a snapshot of a page: the run lets go
of those to keep its own disk free (`storage.blobs.wanted_pages`), and the archive is where they are found afterwards.
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
    """What the events taken in so far ask for. A pure fold; grows with what is named, until it is settled."""

    def __init__(self, *, pages: bool, wanted: Iterable[NamedBlob] = ()) -> None:
        """`pages`: whether snapshots of pages count. `wanted`: what earlier events named and nobody found."""
        self._pages = pages
        self.wanted: dict[str, NamedBlob] = {blob.sha256: blob for blob in wanted}
        self.released: dict[str, BlobRef] = {}

    def take(self, position: int, envelope: Envelope) -> None:
        """The next event."""
        for blob, page in blobs_in(envelope):
            if envelope.type == RELEASING:
                self.wanted.pop(blob.sha256, None)
                if not page:
                    self.released[blob.sha256] = blob
            elif self._pages or not page:
                self.released.pop(blob.sha256, None)
                named = NamedBlob(sha256=blob.sha256, size=blob.size, position=position)
                self.wanted.setdefault(blob.sha256, named)


class CopyResult(msgspec.Struct, kw_only=True):
    """What settling did."""

    copied: int = 0
    bytes: int = 0
    present: int = 0
    """There already."""
    released: int = 0
    """Let go of in the archive too."""
    damaged: list[str] = msgspec.field(default_factory=list)
    """Why blobs could not be copied that are there: their bytes are not what their name says."""


def settle(
    needs: BlobNeeds,
    source: BlobStore,
    target: BlobStore,
    report: CopyResult,
    *,
    stop: Event,
    on_blob: Callable[[int], None] = lambda _: None,
) -> tuple[NamedBlob, ...]:
    """Copy what is needed, each checked against its digest, and let go of what is released; returns what is missing.

    `on_blob` hears how many are left. Once `stop` is set it returns early and settles nothing: the next call begins
    again, past what is there already.

    Raises:
        DiskFull: there is no room for them.

    """
    missing: dict[str, NamedBlob] = {}
    for left, named in zip(range(len(needs.wanted), 0, -1), list(needs.wanted.values()), strict=True):
        if stop.is_set():
            return ()
        on_blob(left)
        if target.has(named.ref):
            report.present += 1
            continue
        try:
            target.put(source.get(named.ref))
            report.copied += 1
            report.bytes += named.size
        except BlobMissing:
            missing[named.sha256] = named
        except BlobCorrupt as error:
            missing[named.sha256] = named
            report.damaged.append(str(error))
    for blob in needs.released.values():
        report.released += target.has(blob)
        target.release(blob)
    needs.wanted = missing
    needs.released.clear()
    return tuple(missing.values())
