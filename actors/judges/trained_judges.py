"""Where a judge comes from that the run itself trains: each newly published version replaces the one before.

Free of torch, so that a run without such a judge loads none.
"""

from collections.abc import Callable
from typing import Protocol

from hindcast.actors.judges.base import EpisodeModelJudge
from hindcast.events.log.port import EventLog


class JudgeVersions(Protocol):
    """Holds the versions of one judge."""

    @property
    def name(self) -> str:
        """Of the judge."""
        ...

    async def begin(self, log: EventLog) -> EpisodeModelJudge:
        """The newest version that the log knows now. Called once, before `follow`."""
        ...

    async def follow(self, log: EventLog, replace: Callable[[EpisodeModelJudge], None]) -> None:
        """Hand over every newer version as it is published, for ever."""
        ...
