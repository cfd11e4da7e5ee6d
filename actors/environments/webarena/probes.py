"""What a probe writes into the evidence: one `Look` per entry of `program_html`, in the task's order."""

from collections.abc import Sequence
from typing import Any

import msgspec

from core.evidence import Evidence

LOOKS = "looks"
MAX_CHARACTERS = 150_000
"""Kept of one text."""
MAX_ALL_BYTES = 400_000
"""Kept of all texts of an episode, so that its end fits into one event."""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What stood in one place at the end of an episode."""

    url: str
    """Where was looked."""
    found: str | None
    """The text there, empty where the locator found nothing; None: nobody could look."""
    cut: bool = False
    """Whether the text goes on."""
    problem: str = ""
    """Why nobody could look."""


def stored(looks: Sequence[Look]) -> dict[str, Any]:
    """The probes of an evidence. Texts beyond the bounds are cut, and say so."""
    left, kept = MAX_ALL_BYTES, []
    for look in looks:
        text = look.found
        if text is not None:
            # a page may hold half a surrogate pair, which no event can
            text = text[:MAX_CHARACTERS].encode("utf-8", "replace")[:left].decode("utf-8", "ignore")
            left -= len(text.encode())
            cut = look.cut or len(text) < len(look.found or "")
            look = msgspec.structs.replace(look, found=text, cut=cut)
        kept.append(look)
    return {LOOKS: msgspec.to_builtins(kept)}


def looks_of(evidence: Evidence) -> list[Look]:
    """The looks of an evidence; none where it holds none."""
    return msgspec.convert(evidence.probes.get(LOOKS, []), list[Look])
