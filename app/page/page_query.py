"""One question of a visitor's: which run, as of where, and what the address says besides."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from hindcast.app.page.runs import OpenRuns
from hindcast.app.runs.runs import RunHandle
from hindcast.core.errors import SettingsError

_NUMBER = re.compile(r"-?[0-9]{1,19}")
_LARGEST = 2**62
"""Fits a column of every database, with room to reckon; a time in nanoseconds since 1970 is less than half of it."""


def whole_number(text: str) -> int | None:
    """A number that somebody wrote; None: it is none, or larger than any that was recorded."""
    number = int(text) if _NUMBER.fullmatch(text) else None
    return number if number is not None and abs(number) <= _LARGEST else None


@dataclass(frozen=True)
class PageQuery:
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
        """A whole number that was chosen. Raises SettingsError for anything else, and for one that no column holds."""
        text = self.word(name)
        if text is None:
            return None
        number = whole_number(text)
        if number is None:
            raise SettingsError(f"{name}={text[:40]!r} in the address must be a whole number")
        return number
