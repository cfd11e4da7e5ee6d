"""An episode's screenshots: a summary in words, and writing them to files."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from hindcast.core.domain.screen import Mark
from hindcast.core.errors import BlobCorrupt, BlobMissing
from hindcast.events.envelope import BlobRef
from hindcast.storage.blobs.store import BlobStore
from hindcast.storage.readmodel.results import ScreenshotRow


def in_words(rows: Sequence[ScreenshotRow]) -> list[str]:
    """Summary lines: how many are stored, and why others are not."""
    kept = [row for row in rows if row.sha256 is not None and row.released is None]
    released = [row for row in rows if row.released is not None]
    lines = []
    if kept:
        size = sum(row.size_bytes or 0 for row in kept)
        lines.append(f"{len(kept)} screenshots, {size / 1024:.0f} KiB; --screenshots DIR writes them out")
    if released:
        lines.append(f"{len(released)} screenshots were deleted (storage.keep_page_episodes)")
    lines += [f"no screenshot {_where(row)}: {row.missing}" for row in rows if row.missing]
    return lines


def write_out(
    rows: Sequence[ScreenshotRow], blobs: BlobStore, folder: Path, *, marked: bool = False
) -> tuple[list[Path], list[str]]:
    """Write the stored screenshots into a folder, created if necessary; returns the files and why others are missing.

    `marked`: also write each with numbered boxes over the interactive elements (`core.prompts.rendering.marks`).
    """
    folder.mkdir(parents=True, exist_ok=True)
    files, without = [], []
    for row in rows:
        if row.sha256 is None:
            continue
        file = folder / f"{_name(row)}.jpg"
        try:
            image = blobs.get(BlobRef(row.sha256, row.size_bytes or 0))
        except (BlobMissing, BlobCorrupt) as error:
            gone = f"deleted at position {row.released}" if row.released is not None else str(error)
            without.append(f"no {file.name}: {gone}")
            continue
        file.write_bytes(image)
        files.append(file)
        if marked:
            other = file.with_name(f"{file.stem}-marks.png")
            try:
                other.write_bytes(_with_marks(image, row))
            except ValueError as error:
                without.append(f"no {other.name}: {error}")
            else:
                files.append(other)
    return files, without


def _with_marks(image: bytes, row: ScreenshotRow) -> bytes:
    from hindcast.core.prompts.rendering.marks import draw_marks  # imports Pillow

    marks = msgspec.json.decode(row.marks or "[]", type=tuple[Mark, ...])
    return draw_marks(image, marks, scale=row.scale or 1.0)


def _name(row: ScreenshotRow) -> str:
    return "end" if row.step is None else f"step-{row.step:03d}-{row.shows}"


def _where(row: ScreenshotRow) -> str:
    return "of the page it ended on" if row.step is None else f"{row.shows} step {row.step}"
