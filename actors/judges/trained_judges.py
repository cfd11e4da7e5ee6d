"""Interface of the versions of a judge that the run itself trains: each published version replaces the one before.

This module does not import torch, so that a run without such a judge loads none.
"""

from collections.abc import Callable
from typing import Protocol

from hindcast.actors.judges.base import EpisodeModelJudge
from hindcast.events.log.port import EventLog


class JudgeVersions(Protocol):
    """Holds the versions of one judge."""

    @property
    def name(self) -> str:
        """Name of the judge."""
        ...

    async def begin(self, log: EventLog) -> EpisodeModelJudge:
        """The newest version that the log holds now. Called once, before `follow`."""
        ...

    async def follow(self, log: EventLog, replace: Callable[[EpisodeModelJudge], None]) -> None:
        """Pass every newer version to `replace` as it is published, forever."""
        ...
