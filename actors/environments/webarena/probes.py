"""What a probe stores in the evidence: one `ProbedPage` per entry of `program_html`, in the task's order.

Whole pages are read whole. Long texts are stored compressed. Of texts that are too long even then, passages are stored
that decide the task's check as the whole text does.
"""

from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import Any

import msgspec
import zstandard

from hindcast.actors.environments.webarena.matchers import Rules, comparable, includes_any
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
    full_text = comparable(text, rules)
    passages_by_start: dict[int, str] = {}
    included = [_includes_any(reference, full_text, rules) for reference in required.references]
    for reference, holds in zip(required.references, included, strict=True):
        starts = (
            start
            for start, window_text in _windows(text, window)
            if _includes_any(reference, comparable(window_text, rules), rules)
        )
        start = next(starts, None) if holds else None
        if start is not None:
            passages_by_start[start] = text[start : start + window]
    passages = BETWEEN.join(passages_by_start[start] for start in sorted(passages_by_start))
    alike = [
        _includes_any(reference, comparable(passages, rules), rules) for reference in required.references
    ] == included
    return passages if alike else None


def _includes_any(reference: str, text: str, rules: Rules) -> bool:
    return includes_any(reference, text, rules, alone=False, on_page=True)


def _windows(text: str, size: int) -> Iterator[tuple[int, str]]:
    """Overlapping windows of a text with their positions; every stretch of half their size is whole in one."""
    for start in range(0, len(text), size // 2):
        yield start, text[start : start + size]


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


def encode_probes(pages: Sequence[ProbedPage], evaluation: Evaluation | None = None) -> dict[str, Any]:
    """Encode the results as the probes of an evidence.

    `evaluation`: what the results are for, an entry of `program_html` each. Without it, texts that are too long to be stored
    are cut.
    """
    bytes_left, stored_pages = MAX_ALL_BYTES, []
    for number, page in enumerate(pages):
        pages_after = len(pages) - number - 1
        stored_page = _stored_page(
            page,
            max(bytes_left - pages_after * KEPT_FREE_BYTES, bytes_left // (pages_after + 1)),
            evaluation,
            number,
        )
        bytes_left -= _base64_bytes(stored_page.packed) + len((stored_page.found or "").encode())
        stored_pages.append(stored_page)
    return {LOOKS: msgspec.to_builtins(stored_pages)}


def _stored_page(page: ProbedPage, max_bytes: int, evaluation: Evaluation | None, number: int) -> StoredLook:
    uncompressed = StoredLook(url=page.url, found=page.found, cut=page.cut, problem=page.problem)
    if page.found is None:
        return uncompressed
    # a page may hold half a surrogate pair, which an event cannot encode
    content = page.found[:MAX_CHARACTERS].encode("utf-8", "replace")
    cut = page.cut or len(page.found) > MAX_CHARACTERS
    text = content.decode()
    if len(content) <= min(max_bytes, MAX_PLAIN_BYTES):
        return msgspec.structs.replace(uncompressed, found=text, cut=cut)
    packed = zstandard.ZstdCompressor(level=LEVEL).compress(content)
    if _base64_bytes(packed) <= max_bytes:
        return msgspec.structs.replace(uncompressed, found=None, packed=packed, cut=cut)
    passages = (
        passages_of(text, evaluation.targets[number].required, evaluation.rules) if evaluation else None
    )
    if passages is not None and len(passages.encode()) <= max_bytes:
        return msgspec.structs.replace(uncompressed, found=passages, cut=cut, excerpt=True)
    return msgspec.structs.replace(
        uncompressed, found=content[:max_bytes].decode("utf-8", "ignore"), cut=True
    )


def _base64_bytes(packed: bytes) -> int:
    """Length of bytes in base64, their form in plain values."""
    return -(-len(packed) // 3) * 4


def decode_probes(evidence: Evidence) -> list[ProbedPage]:
    """Decode the results of an evidence; none where it holds none.

    Raises:
        zstandard.ZstdError, TooLarge, UnicodeDecodeError: a text does not decode.
    """
    stored_pages = convert(evidence.probes.get(LOOKS, []), list[StoredLook])
    return [
        ProbedPage(
            url=page.url,
            found=_unpacked(page.packed) if page.packed else page.found,
            cut=page.cut,
            problem=page.problem,
            excerpt=page.excerpt,
        )
        for page in stored_pages
    ]


def _unpacked(packed: bytes) -> str:
    with zstandard.ZstdDecompressor().stream_reader(BytesIO(packed)) as stream:
        most_bytes = MAX_CHARACTERS * MAX_CHARACTER_BYTES
        return read_bounded(stream, most_bytes=most_bytes, content_name="a page in the evidence").decode()
