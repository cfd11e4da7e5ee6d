"""Witnesses: records outside the log of how far it went, and which event was there.

A log cannot show that its end is missing. The read model, attached consumers and earlier audits can: each records, with its
own state, the position up to which it has read.
"""

from collections.abc import Sequence

import msgspec

from hindcast.storage.audit.defects import LOST, Findings
from hindcast.storage.audit.digests import Digests


class Witness(msgspec.Struct, frozen=True, kw_only=True):
    """A reader of the log, with its position."""

    name: str
    """Its name in words, such as `the read model`."""
    position: int
    digest: bytes = b""
    """sha256 of the stored bytes at the position; empty if unknown."""
    rolling: bytes = b""
    """Rolling digest of the log up to the position; empty if unknown."""
    first_digest: bytes = b""
    """sha256 of the log's first event; empty if unknown."""


class Witnesses:
    """Compares the log with the witnesses, as reading reaches their positions."""

    def __init__(self, witnesses: Sequence[Witness], findings: Findings, digests: Digests) -> None:
        self._ahead = sorted(witnesses, key=lambda witness: witness.position, reverse=True)
        self._findings = findings
        self._digests = digests

    def take(self, position: int, digest: bytes) -> None:
        """Compare the event at a position; call after the rolling digest was advanced."""
        if position == 1:
            self._compare_first(digest)
        while self._ahead and self._ahead[-1].position <= position:
            witness = self._ahead.pop()
            if witness.position < position:
                continue  # it is in a hole, which is reported
            if witness.digest and witness.digest != digest:
                self._findings.add(
                    "witness",
                    position,
                    f"{witness.name} has read another event here",
                    expected=f"sha256 {witness.digest.hex()}",
                    found=f"sha256 {digest.hex()}",
                    meaning="The event was altered, or the log lost its end and was written anew from here.",
                )
            if witness.rolling:
                self._digests.compare(witness.rolling, position, position=position, said_by=witness.name)

    def _compare_first(self, digest: bytes) -> None:
        for witness in self._ahead:
            if witness.first_digest and witness.first_digest != digest:
                self._findings.add(
                    "witness",
                    1,
                    f"{witness.name} has read a log that begins with another event",
                    expected=f"sha256 {witness.first_digest.hex()}",
                    found=f"sha256 {digest.hex()}",
                    meaning="The event was altered, or another log was put under this name.",
                )

    def finish(self, last: int) -> None:
        """Report the witness that has read beyond the end of the log."""
        if not self._ahead or self._ahead[0].position <= last:
            return
        furthest = self._ahead[0]
        self._findings.add(
            "witness",
            last + 1,
            f"the end of the log is gone: {furthest.name} had read it up to position {furthest.position}",
            until=furthest.position,
            expected=f"{furthest.position} events",
            found=f"{last} events",
            meaning=f"{LOST} New events would be given positions that others had before.",
        )
