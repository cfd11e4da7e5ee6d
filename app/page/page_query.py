"""A visitor's request: the run, the position, and the parameters of the address."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from hindcast.app.page.runs import OpenRuns
from hindcast.app.runs.runs import RunHandle
from hindcast.core.errors import SettingsError

_NUMBER = re.compile(r"-?[0-9]{1,19}")
_LARGEST = 2**62
"""Largest number accepted: it fits every database's columns and leaves room for sums; times in ns are less than half."""


def whole_number(text: str) -> int | None:
    """Parse a whole number; None if it is none, or larger than any recorded one."""
    number = int(text) if _NUMBER.fullmatch(text) else None
    return number if number is not None and abs(number) <= _LARGEST else None


@dataclass(frozen=True)
class PageQuery:
    """Input of a page's answer."""

    runs: OpenRuns
    """All runs of the home."""
    run: RunHandle
    connection: Connection
    """One consistent view of the run's read model."""
    position: int
    """Position as of which the page answers."""
    parts: Mapping[str, str]
    """Parameters in the path, by name: `episode`."""
    query: Mapping[str, str]
    """Query parameters."""

    def word(self, name: str) -> str | None:
        """A query parameter; None if it is absent or empty."""
        return self.query.get(name) or None

    def number(self, name: str) -> int | None:
        """A whole number in the query. Raises SettingsError for anything else, and for one that no column holds."""
        text = self.word(name)
        if text is None:
            return None
        number = whole_number(text)
        if number is None:
            raise SettingsError(f"{name}={text[:40]!r} in the address must be a whole number")
        return number
