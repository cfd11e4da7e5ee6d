"""Measured rows, one file per row and seed: what a table is made of, over as many days as it takes.

A file is written whole when its row is done. What is not there was not run.
"""

from pathlib import Path

import msgspec

from bench.loop import Point
from hindcast.core.errors import SettingsError

Struct = msgspec.Struct


class Result(Struct, frozen=True, kw_only=True):
    """What one row came to under one seed."""

    row: str
    seed: int
    identity: str
    """Of the row's settings: see `config.identity`."""
    successes: int
    episodes: int
    """With a verdict."""
    lost: int
    mean_steps: float
    by_family: dict[str, tuple[int, int]]
    """Successes and episodes."""
    failures: dict[str, int]
    """Failed episodes by kind: see `failures`."""
    curve: tuple[Point, ...] = ()
    updates: int = 0
    minutes: float = 0.0
    """Of training."""
    training_episodes: int = 0
    events: int = 0
    log_digest: str = ""
    """Rolling sha256 over the run's log; empty where nothing was trained."""
    home: str = ""
    """Folder of the run beside the results: `HINDCAST_HOME` for `hindcast verify`."""
    revision: str = ""
    """Of the code that measured it."""

    @property
    def rate(self) -> float:
        """Success."""
        return self.successes / self.episodes if self.episodes else 0.0


class Results:
    """The folder of results."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, row: str, seed: int, identity: str) -> Result | None:
        """The result of exactly these settings, if it is there.

        Raises:
            SettingsError: its file cannot be read.

        """
        path = self._path(row, seed, identity)
        if not path.is_file():
            return None
        try:
            return msgspec.json.decode(path.read_bytes(), type=Result)
        except msgspec.MsgspecError as error:
            raise SettingsError(f"{path} is no result: {error}. Remove it to run that row again.") from error

    def keep(self, result: Result) -> Path:
        """Write a result; a reader sees the whole file or none of it."""
        path = self._path(result.row, result.seed, result.identity)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1))
        partial.replace(path)
        return path

    def _path(self, row: str, seed: int, identity: str) -> Path:
        return self._folder / f"{row}-{seed}-{identity}.json"
