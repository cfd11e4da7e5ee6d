"""Checks that every blob that an event names exists, byte for byte, or was released by an event.

Each distinct blob is checked once, in a thread next to the fold. A missing blob is compared with the log only at the end:
a release is an event first and a deletion after it, so every rightly missing blob has its event by then.
"""

import hashlib
from array import array
from collections.abc import Sequence
from typing import Literal, NamedTuple

from hindcast.core.errors import BlobMissing, HindcastError
from hindcast.events.envelope import BlobRef
from hindcast.storage.audit.check import Check
from hindcast.storage.audit.decoder import Event
from hindcast.storage.audit.defects import Findings
from hindcast.storage.audit.policies import Policies
from hindcast.storage.audit.shapes import Refs
from hindcast.storage.blobs.store import BlobStore

Depth = Literal["full", "exist", "none"]
"""Check digests of all bytes; existence and size; nothing."""

REMEMBERED = 1 << 18
"""Blobs remembered as checked (2 MB); a forgotten one is checked again."""


class Named(NamedTuple):
    """A blob as an event names it."""

    sha256: str
    size: int
    position: int
    event: str


class Fault(NamedTuple):
    """What is wrong with a blob."""

    named: Named
    missing: bool
    found: str


class Blobs(Check):
    """Blobs to check, and the results. Memory grows only with missing or released blobs."""

    name = "blob"

    def __init__(
        self,
        findings: Findings,
        *,
        since: int,
        store: BlobStore | None,
        depth: Depth,
        pages: bool,
        policies: Policies,
    ) -> None:
        """`store`: None if there are no blobs to check. `pages`: whether page snapshots are expected."""
        super().__init__(findings, since=since)
        self._store = store
        self._depth = depth if store is not None else "none"
        self._pages = pages
        self._policies = policies
        self._checked_keys = array("Q", bytes(8 * REMEMBERED))
        self._waiting: list[Named] = []
        self._missing: dict[str, Fault] = {}
        self._released: dict[str, int] = {}
        self._weights = ""
        """Digest of the newest weights."""
        self.checked = 0
        """Blobs that existed and were checked."""
        self.bytes = 0

    @property
    def released(self) -> int:
        """Number of released blobs."""
        return len(self._released)

    def take(self, event: Event, refs: Refs, *, pages: bool) -> None:
        """Take in the blobs that an event names. `pages`: whether they are page snapshots and screenshots."""
        if event.type == "blob.released":
            ((sha256, size),) = refs
            self._release(event, sha256, size)
            return
        if event.type == "weights.published":
            self._weights = event.payload["weights"]["sha256"]
        if self._depth == "none" or (pages and not self._pages):
            return
        for sha256, size in refs:
            key = _key(sha256, size)
            slot = key % REMEMBERED
            if self._checked_keys[slot] != key:
                self._checked_keys[slot] = key
                self._waiting.append(Named(sha256, size, event.position, event.type))

    def _release(self, event: Event, sha256: str, size: int) -> None:
        unreleasable = {self._policies.base: "the base policy", self._weights: "the newest weights"}
        if sha256 and sha256 in unreleasable:
            self.defect(event, f"it releases {unreleasable[sha256]}", "kept as long as the run", sha256)
        self._released[sha256] = event.position
        self._checked_keys[_key(sha256, size) % REMEMBERED] = 0  # named again, it must exist again

    def release_later(self, sha256: str) -> None:
        """Take in a release after the audited part of the log."""
        self._released.setdefault(sha256, 0)
        self._missing.pop(sha256, None)

    def take_due(self) -> list[Named]:
        """Blobs to check now; each is returned once."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def check_blobs(self, blobs: Sequence[Named]) -> list[Fault]:
        """Check blobs. Blocking; changes nothing."""
        return [fault for blob in blobs if (fault := self._check_blob(blob)) is not None]

    def _check_blob(self, blob: Named) -> Fault | None:
        assert self._store is not None
        ref = BlobRef(blob.sha256, blob.size)
        try:
            path = self._store.path(ref)
            if self._depth == "exist":
                return None
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except (BlobMissing, FileNotFoundError):
            return Fault(blob, True, "nothing")
        except (HindcastError, OSError) as error:
            return Fault(blob, False, str(error))
        return None if digest == blob.sha256 else Fault(blob, False, f"bytes with sha256 {digest}")

    def note(self, checked: Sequence[Named], faults: Sequence[Fault]) -> None:
        """Take in the results of `check_blobs`."""
        missing = {fault.named for fault in faults if fault.missing}
        self.checked += len(checked) - len(missing)
        self.bytes += sum(blob.size for blob in checked if blob not in missing)
        for fault in faults:
            if fault.missing:
                self._missing[fault.named.sha256] = fault
            else:
                self._report(
                    fault, "a blob holds other bytes than its name says", "The file was altered or damaged."
                )

    @property
    def doubtful(self) -> bool:
        """Whether blobs are missing without a release so far."""
        return any(sha256 not in self._released for sha256 in self._missing)

    def finish(self) -> None:
        """Report blobs that are missing without a release."""
        for sha256, fault in self._missing.items():
            released = self._released.get(sha256)
            if released is None or 0 < released < fault.named.position:
                self._report(
                    fault,
                    "a blob is gone",
                    "It was removed without a blob.released, or its folder was moved.",
                )

    def _report(self, fault: Fault, what: str, meaning: str) -> None:
        blob = fault.named
        self._findings.add(
            self.name,
            blob.position,
            what,
            event=blob.event,
            expected=f"{blob.size} bytes with sha256 {blob.sha256}",
            found=fault.found,
            meaning=meaning,
        )


def _key(sha256: str, size: int) -> int:
    return int(sha256[:16], 16) ^ size
