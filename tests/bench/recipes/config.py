"""What the table compares: rows (a recipe with settings), claims about pairs of rows, and which seeds tune or are reported.

Fixed beforehand in a file of the repository. A row's identity is a digest of all that decides its result, so that a
result of other settings is never taken for it.
"""

import tomllib
from collections.abc import Collection
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from hindcast.core.errors import SettingsError
from hindcast.core.ids import digest_hex


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way to train, or none."""

    name: str
    recipe: str
    """Whose settings it acts and trains under."""
    updates: int = 0
    """Of the policy, its parent's not counted."""
    minutes: float = 0.0
    """Of training, instead of updates. With neither, nothing is trained, and the base policy, or the parent's, is measured."""
    parent: str = msgspec.field(name="from", default="")
    """The row whose last version it begins with, as a fork under the same seed; empty: the base policy."""
    set: tuple[str, ...] = ()
    """Further settings, as `--set` takes them."""
    families: tuple[str, ...] = ()
    """What it trains on and is measured on; empty: the table's."""

    @property
    def trained(self) -> bool:
        """Whether it is a run of its own."""
        return self.updates > 0 or self.minutes > 0


class Claim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """That one row succeeds more often than another, or hardly less."""

    name: str
    ours: str
    theirs: str
    paper: float | None = None
    """The ratio of their success rates in the paper; None: only its direction is claimed."""
    source: str = ""
    """Where the paper says so."""
    margin: float | None = None
    """Points that ours may be worse (non-inferiority); None: ours is claimed to be better."""
    seeds: int = 0
    """How many of the reported seeds it is for; 0: all."""
    pilot: tuple[float, float] | None = None
    """Success of ours and theirs on tuning seeds, from which the power is computed."""
    fixed: str = ""
    """Date on which its rows and their settings were fixed, before the reported seeds were run; empty: still being tuned."""


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that is fixed beforehand."""

    reported_seeds: tuple[int, ...]
    tuning_seeds: tuple[int, ...]
    """Settings were chosen on these; nothing of them is reported."""
    temperatures: tuple[float, ...]
    """At which every version is measured; claims rest on the first, the others are secondary."""
    episodes: int
    """Of each measurement."""
    points: int
    """Versions measured along the way, the last included."""
    edition: int
    """Raised when a default that rows rest on changes: results of an earlier edition are others'."""
    minutes: float
    """After which a training is given up."""
    spread: float = 0.05
    """Standard deviation of a row's success over seeds that the power assumes."""
    families: tuple[str, ...]
    """What is trained on and measured, on other seeds."""
    set: tuple[str, ...] = ()
    """Settings of all rows."""
    rows: tuple[Row, ...]
    claims: tuple[Claim, ...]
    ablations: tuple[Claim, ...] = ()

    def row(self, name: str) -> Row:
        """The row of that name."""
        return next(one for one in self.rows if one.name == name)

    def families_of(self, row: Row) -> tuple[str, ...]:
        """What a row trains on and is measured on."""
        return row.families or self.families

    def planned_seeds(self, claim: Claim) -> int:
        """Number of reported seeds that a claim is for."""
        return claim.seeds or len(self.reported_seeds)

    def with_parents(self, names: Collection[str]) -> tuple[Row, ...]:
        """These rows and those that they begin with, each once, parents first."""
        wanted = {above.name for name in names for above in self.line_of(self.row(name))}
        return tuple(
            sorted((row for row in self.rows if row.name in wanted), key=lambda row: len(self.line_of(row)))
        )

    def claimed(self, claims: tuple[Claim, ...], *, seed: int) -> tuple[Row, ...]:
        """The rows that a seed needs for these claims, parents first."""
        return self.with_parents(
            {name for claim in claims if seed in self.seeds_of(claim) for name in (claim.ours, claim.theirs)}
        )

    def seeds_of(self, claim: Claim) -> tuple[int, ...]:
        """The reported seeds that a claim is for, and those for tuning."""
        return (*self.reported_seeds[: claim.seeds or None], *self.tuning_seeds)

    def line_of(self, row: Row) -> list[Row]:
        """A row and all that it descends from, itself first."""
        line = [row]
        while line[-1].parent:
            line.append(self.row(line[-1].parent))
        return line

    def settings_of(self, row: Row) -> list[str]:
        """What a row sets, as `--set` takes it; the row's own last."""
        families = msgspec.json.encode(self.families_of(row)).decode()
        return [f"curriculum.families={families}", *self.set, *row.set]


def load_table(path: Path | None = None) -> Table:
    """The table of the repository, or of a file.

    A row with `like = "other"` has the other row's keys, its own over them, and its own `set` after the other's.

    Raises:
        SettingsError: it cannot be read, or does not hold together.

    """
    where = str(path or "table.toml")
    try:
        content = tomllib.loads((path or files(__package__) / "table.toml").read_text())
        content["rows"] = _alike(content.get("rows", []))
        table = msgspec.convert(content, type=Table)
    except (OSError, KeyError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise SettingsError(f"{where} is no table of recipes: {error}") from error
    problems = [*_problems(table)]
    if problems:
        raise SettingsError(f"{where} does not hold together: {'; '.join(problems)}")
    return table


def _alike(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with what those above them give by `like`."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        other = found[row["like"]] if "like" in row else {}
        merged = other | {key: value for key, value in row.items() if key != "like"}
        found[row["name"]] = merged | {"set": [*other.get("set", []), *row.get("set", [])]}
    return list(found.values()) if len(found) == len(rows) else rows


def _problems(table: Table) -> list[str]:
    names = [row.name for row in table.rows]
    found = [f"two rows are called {name}" for name in sorted(set(names)) if names.count(name) > 1]
    found += [
        f"{claim.name} compares {name!r}, which is no row"
        for claim in (*table.claims, *table.ablations)
        for name in (claim.ours, claim.theirs)
        if name not in names
    ]
    for number, row in enumerate(table.rows):
        if row.parent and row.parent not in names[:number]:
            found.append(f"{row.name} begins with {row.parent!r}, which is no row before it")
    both = sorted({*table.reported_seeds} & {*table.tuning_seeds})
    found += [f"seed {seed} is for tuning and reported" for seed in both]
    if not table.temperatures:
        found.append("temperatures names none to measure at")
    return found


def identity(table: Table, row: Row, resolved: bytes) -> str:
    """Digest of all that decides a row's result but the seed.

    `resolved`: its base policy and those of its settings, and of its parents', that are not the defaults, encoded. So a
    setting that is new, and by default changes nothing, leaves the results of days standing; a changed default raises the
    table's edition.
    """
    return digest_hex(
        msgspec.json.encode(
            {
                "rows": [(one.name, one.recipe, one.minutes or one.updates) for one in table.line_of(row)],
                "resolved": resolved,
                "temperatures": table.temperatures,
                "episodes": table.episodes,
                "points": table.points,
                "edition": table.edition,
            },
            order="sorted",
        )
    )[:16]
