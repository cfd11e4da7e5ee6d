"""What others outside the log know of it: how far it went, and which event stood there.

A log cannot say of itself that its end is gone. The read model, attached consumers and earlier audits can: each notes,
with its own state, up to where it has read.
"""

from collections.abc import Sequence

import msgspec

from hindcast.storage.audit.defects import LOST, Findings
from hindcast.storage.audit.digests import Digests


class Witness(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who has read the log up to a position."""

    name: str
    """In words: `the read model`."""
    position: int
    digest: bytes = b""
    """sha256 of the stored bytes at the position; empty where it is not known."""
    rolling: bytes = b""
    """Rolling digest of the log up to the position; empty where it is not known."""
    first_digest: bytes = b""
    """sha256 of the log's first event; empty where it is not known."""


class Witnesses:
    """Compares the log with what they say, as reading comes to their positions."""

    def __init__(self, witnesses: Sequence[Witness], findings: Findings, digests: Digests) -> None:
        self._ahead = sorted(witnesses, key=lambda witness: witness.position, reverse=True)
        self._findings = findings
        self._digests = digests

    def take(self, position: int, digest: bytes) -> None:
        """The event at a position; the rolling digest has it already."""
        if position == 1:
            self._compare_first(digest)
        while self._ahead and self._ahead[-1].position <= position:
            witness = self._ahead.pop()
            if witness.position < position:
                continue  # it lies in a hole, told of as such
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
        """Whoever has read further than the log goes."""
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
