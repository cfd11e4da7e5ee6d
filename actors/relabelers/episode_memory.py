"""The relabeler's memory of episodes, so that an end finds the steps before it.

It follows the log from its end at start. An episode requested earlier is read backwards from its end, once, so that the
cost of a start does not depend on the length of the log. Of ended episodes that were not taken, because another
relabeler takes them, the latest `ENDED_KEPT` stay.
"""

from hindcast.actors.log_follower import LogFollower, look_back
from hindcast.events.catalogue import EpisodeRequested
from hindcast.events.envelope import Recorded
from hindcast.events.log.episode_assembler import EPISODE_FAMILIES, AssembledEpisode, EpisodeAssembler
from hindcast.events.log.port import EventLog

ENDED_KEPT = 64
"""Ended episodes kept although not taken; one that was dropped is read backwards if it is taken later."""


class EpisodeMemory(LogFollower):
    """Episodes requested since the start: the open ones, and those that ended and were not taken."""

    def __init__(self, log: EventLog) -> None:
        super().__init__(log, EPISODE_FAMILIES)
        self._assembler = EpisodeAssembler()
        self.ended: dict[str, AssembledEpisode] = {}
        """Complete episodes by name, oldest first."""

    def _take(self, recorded: Recorded) -> None:
        episode = self._assembler.take(recorded)
        if episode is not None and episode.is_complete:
            self.ended[episode.name] = episode
            if len(self.ended) > ENDED_KEPT:
                self.forget(next(iter(self.ended)))

    def forget(self, name: str) -> None:
        """Drop an ended episode."""
        self.ended.pop(name, None)

    async def find(self, name: str, *, position: int, stalled_s: float) -> AssembledEpisode | None:
        """The episode that ended at `position`, or None where the log lacks part of it. Raises BrokerUnreachable as `LogFollower`."""
        await self._known_before(position + 1, stalled_s=stalled_s)
        return self.ended.get(name) or await self._look_back(name, end=position)

    async def _look_back(self, name: str, *, end: int) -> AssembledEpisode | None:
        events: list[Recorded] = []
        while end > 0 and not (events and isinstance(events[0].fact, EpisodeRequested)):
            stretch, end = await look_back(self._log, until=end, families=EPISODE_FAMILIES)
            events = [event for event in stretch if getattr(event.fact, "episode", "") == name] + events
        assembler = EpisodeAssembler()
        episode = next(
            (assembled for event in events if (assembled := assembler.take(event)) is not None), None
        )
        return episode if episode is not None and episode.is_complete else None
