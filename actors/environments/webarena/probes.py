"""What a probe stores in the evidence: one `ProbedPage` per entry of `program_html`, in the task's order.

Whole pages are read whole. Long texts are stored compressed. Of texts that are too long even then, passages are stored
that decide the task's check as the whole text does.
"""

from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import Any

import msgspec
import zstandard

from hindcast.actors.environments.webarena.matchers import Rules, includes_any, shown
from hindcast.actors.environments.webarena.schema import Evaluation, Requirement
from hindcast.core.bounded_read import read_bounded
from hindcast.core.domain.evidence import Evidence
from hindcast.core.structs import convert

WINDOW_CHARACTERS = 2_000
"""Least length of a passage; a reference in it has its neighborhood with it."""
BETWEEN = "\n…\n"


def passages_of(text: str, required: Requirement, rules: Rules) -> str | None:
    """One passage for each reference that the text includes; None where they would decide otherwise than the text.

    So a later reading finds exactly the references in the passages that are in the text.
    """
    if required.approach != "must_include":
        return None
    window = max(WINDOW_CHARACTERS, 4 * max(map(len, required.references)))
    whole = shown(text, rules)
    kept: dict[int, str] = {}
    included = [_includes_any(reference, whole, rules) for reference in required.references]
    for reference, holds in zip(required.references, included, strict=True):
        found = (
            place
            for place, part in _windows(text, window)
            if _includes_any(reference, shown(part, rules), rules)
        )
        place = next(found, None) if holds else None
        if place is not None:
            kept[place] = text[place : place + window]
    passages = BETWEEN.join(kept[place] for place in sorted(kept))
    alike = [
        _includes_any(reference, shown(passages, rules), rules) for reference in required.references
    ] == included
    return passages if alike else None


def _includes_any(reference: str, text: str, rules: Rules) -> bool:
    return includes_any(reference, text, rules, alone=False, on_page=True)


def _windows(text: str, size: int) -> Iterator[tuple[int, str]]:
    """Overlapping windows of a text with their positions; every stretch of half their size is whole in one."""
    for place in range(0, len(text), size // 2):
        yield place, text[place : place + size]


LOOKS = "looks"
MAX_CHARACTERS = 4 * 2**20
"""Most characters read of one text."""
MAX_PLAIN_BYTES = 20_000
"""Longer texts are stored compressed."""
MAX_ALL_BYTES = 400_000
"""Most stored bytes of all texts of an episode, so that its end fits into one event."""
KEPT_FREE_BYTES = 16_000
"""Bytes kept free for each result that is still to be stored."""
MAX_CHARACTER_BYTES = 4
LEVEL = 12
"""Level of zstd: a page of a megabyte takes a tenth of a second."""


class ProbedPage(msgspec.Struct, frozen=True, kw_only=True):
    """What one place showed at the end of an episode."""

    url: str
    """Address that was read."""
    found: str | None
    """The text there, empty where the locator found nothing; None: it could not be read."""
    cut: bool = False
    """Whether the text is cut."""
    problem: str = ""
    """Why it could not be read."""
    excerpt: bool = False
    """Whether `found` is passages of the text, which decided as the text did when it was stored."""


class StoredLook(ProbedPage, frozen=True, kw_only=True, omit_defaults=True):
    """A result in the form that evidence stores."""

    packed: bytes = b""
    """The text, UTF-8 in one zstd frame, where it is long; `found` is then None."""


def stored(looks: Sequence[ProbedPage], evaluation: Evaluation | None = None) -> dict[str, Any]:
    """Encode the results as the probes of an evidence.

    `evaluation`: what the results are for, an entry of `program_html` each. Without it, texts that are too long to be stored
    are cut.
    """
    left, kept = MAX_ALL_BYTES, []
    for number, look in enumerate(looks):
        rest = len(looks) - number - 1
        one = _stored(look, max(left - rest * KEPT_FREE_BYTES, left // (rest + 1)), evaluation, number)
        left -= _base64_bytes(one.packed) + len((one.found or "").encode())
        kept.append(one)
    return {LOOKS: msgspec.to_builtins(kept)}


def _stored(look: ProbedPage, most_bytes: int, evaluation: Evaluation | None, number: int) -> StoredLook:
    plain = StoredLook(url=look.url, found=look.found, cut=look.cut, problem=look.problem)
    if look.found is None:
        return plain
    # a page may hold half a surrogate pair, which an event cannot encode
    content = look.found[:MAX_CHARACTERS].encode("utf-8", "replace")
    cut = look.cut or len(look.found) > MAX_CHARACTERS
    text = content.decode()
    if len(content) <= min(most_bytes, MAX_PLAIN_BYTES):
        return msgspec.structs.replace(plain, found=text, cut=cut)
    packed = zstandard.ZstdCompressor(level=LEVEL).compress(content)
    if _base64_bytes(packed) <= most_bytes:
        return msgspec.structs.replace(plain, found=None, packed=packed, cut=cut)
    passages = (
        passages_of(text, evaluation.targets[number].required, evaluation.rules) if evaluation else None
    )
    if passages is not None and len(passages.encode()) <= most_bytes:
        return msgspec.structs.replace(plain, found=passages, cut=cut, excerpt=True)
    return msgspec.structs.replace(plain, found=content[:most_bytes].decode("utf-8", "ignore"), cut=True)


def _base64_bytes(packed: bytes) -> int:
    """Length of bytes in base64, their form in plain values."""
    return -(-len(packed) // 3) * 4


def looks_of(evidence: Evidence) -> list[ProbedPage]:
    """Decode the results of an evidence; none where it holds none.

    Raises:
        zstandard.ZstdError, TooLarge, UnicodeDecodeError: a text does not decode.
    """
    kept = convert(evidence.probes.get(LOOKS, []), list[StoredLook])
    return [
        ProbedPage(
            url=one.url,
            found=_unpacked(one.packed) if one.packed else one.found,
            cut=one.cut,
            problem=one.problem,
            excerpt=one.excerpt,
        )
        for one in kept
    ]


def _unpacked(packed: bytes) -> str:
    with zstandard.ZstdDecompressor().stream_reader(BytesIO(packed)) as stream:
        most_bytes = MAX_CHARACTERS * MAX_CHARACTER_BYTES
        return read_bounded(stream, most_bytes=most_bytes, content_name="a page in the evidence").decode()
