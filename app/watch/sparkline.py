"""A success curve in one line of text. Pure."""

from collections.abc import Iterable

LEVELS = "▁▂▃▄▅▆▇█"
GAP = " "


def sparkline(counts: Iterable[tuple[int, float, int]], *, width: int) -> str:
    """Success over versions from (version, successes, judged), at most `width` characters, from 0 % (▁) to 100 % (█).

    Where there are more versions than characters, those that share one are added up: nothing is left out. Versions
    without any verdict are a gap.

    >>> sparkline([(0, 0, 4), (1, 1, 2), (3, 4, 4)], width=10)
    '▁▅ █'
    >>> sparkline([(0, 0, 1), (1, 1, 1), (2, 1, 1), (3, 1, 1)], width=2)
    '▅█'
    """
    told = [one for one in counts if one[2]]
    if not told or width < 1:
        return ""
    first, last = min(one[0] for one in told), max(one[0] for one in told)
    size = -(-(last - first + 1) // width)
    cells: list[tuple[float, int]] = [(0, 0)] * ((last - first) // size + 1)
    for version, successes, judged in told:
        place = (version - first) // size
        cells[place] = cells[place][0] + successes, cells[place][1] + judged
    return "".join(_level(successes, judged) if judged else GAP for successes, judged in cells)


def _level(successes: float, judged: int) -> str:
    """The level nearest to the rate, halves upwards."""
    return LEVELS[min(len(LEVELS) - 1, int((2 * successes * (len(LEVELS) - 1) + judged) // (2 * judged)))]
