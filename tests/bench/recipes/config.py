"""What the table compares: rows (a recipe with settings), pairs of rows, and which seeds are for tuning or reported.

Fixed beforehand in a file of the repository. A row's identity is a digest of all that decides its result, so that a
result of other settings is never taken for it.
"""

import tomllib
from importlib.resources import files
from pathlib import Path

import msgspec

from hindcast.core.errors import SettingsError
from hindcast.core.ids import digest_hex


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way to train, or none."""

    name: str
    recipe: str
    """Whose settings it acts and trains under."""
    updates: int
    """Of the policy; 0: the base policy is measured as it is."""
    set: tuple[str, ...] = ()
    """Further settings, as `--set` takes them."""


class Claim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """That one row succeeds more often than another."""

    name: str
    ours: str
    theirs: str
    paper: float | None = None
    """The ratio of their success rates in the paper; None: only its direction is claimed."""
    source: str = ""
    """Where the paper says so."""


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that is fixed beforehand."""

    reported_seeds: tuple[int, ...]
    tuning_seeds: tuple[int, ...]
    """Settings were chosen on these; nothing of them is reported."""
    episodes: int
    """Of each measurement."""
    points: int
    """Versions measured along the way, the last included."""
    edition: int
    """Raised when a default that rows rest on changes: results of an earlier edition are others'."""
    minutes: float
    """After which a training is given up."""
    families: tuple[str, ...]
    """What is trained on and measured, on other seeds."""
    set: tuple[str, ...] = ()
    """Settings of all rows."""
    rows: tuple[Row, ...]
    pairs: tuple[Claim, ...]
    ablations: tuple[Claim, ...] = ()

    def row(self, name: str) -> Row:
        """The row of that name."""
        return next(one for one in self.rows if one.name == name)

    def claimed(self, claims: tuple[Claim, ...]) -> tuple[Row, ...]:
        """The rows that these claims compare, each once, in the table's order."""
        names = {name for claim in claims for name in (claim.ours, claim.theirs)}
        return tuple(row for row in self.rows if row.name in names)

    def settings_of(self, row: Row) -> list[str]:
        """What a row sets, as `--set` takes it; the row's own last."""
        families = msgspec.json.encode(self.families).decode()
        return [f"curriculum.families={families}", *self.set, *row.set]


def load_table(path: Path | None = None) -> Table:
    """The table of the repository, or of a file.

    Raises:
        SettingsError: it cannot be read, or does not hold together.

    """
    where = str(path or "table.toml")
    try:
        text = (path or files(__package__) / "table.toml").read_text()
        table = msgspec.convert(tomllib.loads(text), type=Table)
    except (OSError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise SettingsError(f"{where} is no table of recipes: {error}") from error
    names = [row.name for row in table.rows]
    problems = [f"two rows are called {name}" for name in sorted(set(names)) if names.count(name) > 1]
    problems += [
        f"{claim.name} compares {name!r}, which is no row"
        for claim in (*table.pairs, *table.ablations)
        for name in (claim.ours, claim.theirs)
        if name not in names
    ]
    both = sorted({*table.reported_seeds} & {*table.tuning_seeds})
    problems += [f"seed {seed} is for tuning and reported" for seed in both]
    if problems:
        raise SettingsError(f"{where} does not hold together: {'; '.join(problems)}")
    return table


def identity(table: Table, row: Row, resolved: bytes) -> str:
    """Digest of all that decides a row's result but the seed.

    `resolved`: its base policy and those of its settings that are not the defaults, encoded. So a setting that is new, and
    by default changes nothing, leaves the results of days standing; a changed default raises the table's edition.
    """
    return digest_hex(
        msgspec.json.encode(
            {
                "row": row,
                "resolved": resolved,
                "episodes": table.episodes,
                "points": table.points,
                "edition": table.edition,
                "families": table.families,
            },
            order="sorted",
        )
    )[:16]
