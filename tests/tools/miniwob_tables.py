"""The tables of docs/miniwob.md, made from the code: `PYTHONPATH=tests python -m tools.miniwob_tables docs/miniwob.md`.

They are between two comments of the page; a test compares them with the code.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

from hindcast.actors.environments.miniwob.demonstrators import DEMONSTRATORS
from hindcast.actors.environments.miniwob.families import FAMILIES, UNPLAYABLE, USUAL

BEGIN = "<!-- tables: PYTHONPATH=tests python -m tools.miniwob_tables docs/miniwob.md -->"
END = "<!-- end of tables -->"


def tables() -> str:
    """Families with their traits, then the unplayable pages."""
    families = [
        (
            f"`{name}`",
            family.max_steps,
            "yes" if name in DEMONSTRATORS else "",
            "yes" if name in USUAL else "",
            "yes" if family.fixed else "",
            "yes" if family.dated else "",
            "yes" if family.clock else "",
            "yes" if family.reload else "",
        )
        for name, family in sorted(FAMILIES.items())
    ]
    others = [(f"`{name}`", one.kind, one.reason) for name, one in sorted(UNPLAYABLE.items())]
    solved = len(DEMONSTRATORS)
    return "\n".join(
        [
            f"### {len(FAMILIES)} families, {solved} with a demonstrator",
            "",
            *_table(
                (
                    "family",
                    "steps at most",
                    "demonstrator",
                    "usual",
                    "starts alike",
                    "shows the day",
                    "hangs on time",
                    "loaded each time",
                ),
                families,
            ),
            "",
            f"### {len(UNPLAYABLE)} pages that are no family",
            "",
            *_table(("page", "kind", "why"), others),
        ]
    )


def _table(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> list[str]:
    heads = tuple(heads)
    return [
        f"| {' | '.join(heads)} |",
        "|" + "---|" * len(heads),
        *(f"| {' | '.join(str(cell) for cell in row)} |" for row in rows),
    ]


def with_tables(page: str) -> str:
    """The page with its tables from the current code. Raises ValueError for a page without their comments."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no place for the tables: it needs the lines {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n\n{tables()}\n\n{END}{after}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(with_tables(path.read_text(encoding="utf-8")), encoding="utf-8")
