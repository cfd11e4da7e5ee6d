"""One question of a visitor's: which run, as of where, and what the address says besides."""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from app.page.runs import OpenRuns
from app.runs import RunHandle
from core.errors import SettingsError


@dataclass(frozen=True)
class Ask:
    """What a page's answer is made from."""

    runs: OpenRuns
    """All of the home."""
    run: RunHandle
    connection: Connection
    """One consistent view of the run's read model."""
    position: int
    """As of which everything is answered."""
    parts: Mapping[str, str]
    """Of the address, by name: `episode`."""
    query: Mapping[str, str]
    """Behind the question mark."""

    def word(self, name: str) -> str | None:
        """What was chosen, None where nothing was."""
        return self.query.get(name) or None

    def number(self, name: str) -> int | None:
        """A whole number that was chosen. Raises SettingsError for anything else."""
        text = self.word(name)
        if text is None:
            return None
        try:
            return int(text)
        except ValueError:
            raise SettingsError(f"{name}={text!r} in the address must be a whole number") from None
