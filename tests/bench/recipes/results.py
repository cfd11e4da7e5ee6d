"""Measured rows, one file per row and seed: what a table is made of, over as many days and machines as it takes.

A file is written whole when its row is done, into the repository. What is not there was not run.
"""

from pathlib import Path

import msgspec

from hindcast.core.errors import SettingsError

Struct = msgspec.Struct
KEPT = Path(__file__).parent / "results"
"""The results of the repository."""
WON, LOST, UNDECIDED = "1", "0", "-"


class Measurement(Struct, frozen=True, kw_only=True):
    """One version at one temperature."""

    temperature: float
    version: int
    minutes: float
    """Of training until it was published."""
    outcomes: dict[str, str]
    """By family one character per task, in the tasks' order: won, lost, or without a verdict. Every row measured under the
    same seed has the same tasks in the same order."""
    mean_steps: float
    failures: dict[str, int]
    """Failed episodes by kind: see `failures`."""

    @property
    def by_family(self) -> dict[str, tuple[int, int]]:
        """Successes and episodes with a verdict."""
        return {
            family: (found.count(WON), len(found) - found.count(UNDECIDED))
            for family, found in self.outcomes.items()
        }

    @property
    def successes(self) -> int:
        """Over all families."""
        return sum(won for won, _ in self.by_family.values())

    @property
    def episodes(self) -> int:
        """With a verdict."""
        return sum(tried for _, tried in self.by_family.values())

    @property
    def lost(self) -> int:
        """Without a verdict."""
        return sum(found.count(UNDECIDED) for found in self.outcomes.values())

    @property
    def rate(self) -> float:
        """Success."""
        return self.successes / self.episodes if self.episodes else 0.0


class Result(Struct, frozen=True, kw_only=True):
    """What one row came to under one seed."""

    row: str
    seed: int
    identity: str
    """Of the row's settings: see `config.identity`."""
    measurements: tuple[Measurement, ...]
    """Of every version measured, oldest first, at every temperature of the table."""
    updates: int = 0
    """Of the policy, its parent's not counted."""
    last_update: int = 0
    """Number of the last one, its parent's counted."""
    minutes: float = 0.0
    """Of training."""
    training_episodes: int = 0
    events: int = 0
    log_digest: str = ""
    """Rolling sha256 over the run's log; empty where nothing was trained."""
    parent_log: str = ""
    """That of the parent's: rows are compared task by task only if they descend from one run."""
    home: str = ""
    """Folder of the run beside the results: `HINDCAST_HOME` for `hindcast verify`."""
    revision: str = ""
    """Of the code that measured it."""
    machine: str = ""
    """And the date."""
    diagnostics: dict[str, float] = msgspec.field(default_factory=dict)
    """What the log tells of the training: see `diagnostics`."""

    def last(self, temperature: float) -> Measurement:
        """The measurement of its last version."""
        return self.curve(temperature)[-1]

    def curve(self, temperature: float) -> list[Measurement]:
        """Its versions at one temperature, oldest first."""
        return [one for one in self.measurements if one.temperature == temperature]

    @property
    def descent(self) -> set[str]:
        """Logs that it stands on."""
        return {self.log_digest, self.parent_log} - {""}


class Results:
    """The folder of results."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, row: str, seed: int, identity: str, *, parent_log: str | None = None) -> Result | None:
        """The result of exactly these settings, if it is there and begins with that parent (None: with any).

        Raises:
            SettingsError: its file cannot be read.

        """
        path = self._path(row, seed, identity)
        if not path.is_file():
            return None
        try:
            found = msgspec.json.decode(path.read_bytes(), type=Result)
        except msgspec.MsgspecError as error:
            raise SettingsError(f"{path} is no result: {error}. Remove it to run that row again.") from error
        return found if parent_log in (None, found.parent_log) else None

    def keep(self, result: Result) -> Path:
        """Write a result; a reader sees the whole file or none of it."""
        path = self._path(result.row, result.seed, result.identity)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")
        partial.replace(path)
        return path

    def _path(self, row: str, seed: int, identity: str) -> Path:
        return self._folder / f"{row}-{seed}-{identity}.json"
