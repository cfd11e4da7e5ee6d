"""Suggestions for a name that is not known: the known names that look most like it."""

from collections.abc import Iterable

from rapidfuzz import fuzz, process, utils

ALIKE = 60.0
"""Least similarity of a suggestion, in per cent: 2 x common letters in order / letters of both. `grpo` and `mgrpo` have 89."""
MOST_NAMED = 20
"""Names that a sentence lists."""


def nearest(name: str, known: Iterable[str], *, most: int = 1) -> list[str]:
    """The known names that are most like a name, best first; empty where none is alike."""
    found = process.extract(
        name,
        sorted(known),
        scorer=fuzz.ratio,
        processor=utils.default_process,
        score_cutoff=ALIKE,
        limit=most,
    )
    return [match for match, *_ in found]


def advice(name: str, known: Iterable[str]) -> str:
    """What to choose instead of an unknown name, as the end of a sentence: the nearest known name, and the names if few.

    >>> advice("grpo", ["mgrpo", "webrl"])
    'the nearest is mgrpo; there are: mgrpo, webrl'
    >>> advice("xyz", ["mgrpo", "webrl"])
    'there are: mgrpo, webrl'
    """
    names = sorted(known)
    near = nearest(name, names)
    said = [f"the nearest is {near[0]}"] if near else []
    if not near or len(names) <= MOST_NAMED:
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        said.append(f"there are: {', '.join(names[:MOST_NAMED]) or 'none'}{more}")
    return "; ".join(said)
