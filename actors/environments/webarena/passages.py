"""Passages that decide a check as the whole page does, for pages too long to be stored."""

from collections.abc import Iterator

from hindcast.actors.environments.webarena.matchers import Rules, includes_any, shown
from hindcast.actors.environments.webarena.schema import Requirement

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
    included = [_includes(reference, whole, rules) for reference in required.references]
    for reference, holds in zip(required.references, included, strict=True):
        found = (
            place for place, part in _windows(text, window) if _includes(reference, shown(part, rules), rules)
        )
        place = next(found, None) if holds else None
        if place is not None:
            kept[place] = text[place : place + window]
    passages = BETWEEN.join(kept[place] for place in sorted(kept))
    alike = [
        _includes(reference, shown(passages, rules), rules) for reference in required.references
    ] == included
    return passages if alike else None


def _includes(reference: str, text: str, rules: Rules) -> bool:
    return includes_any(reference, text, rules, alone=False, on_page=True)


def _windows(text: str, size: int) -> Iterator[tuple[int, str]]:
    """Overlapping windows of a text with their positions; every stretch of half their size is whole in one."""
    for place in range(0, len(text), size // 2):
        yield place, text[place : place + size]
