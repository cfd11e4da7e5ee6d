"""The relabeler's memory of running episodes, so that an end finds the steps before it.

It follows the log from its end at start. An episode requested earlier is read backwards from its end, once, so that the
cost of a start does not depend on the length of the log. An episode is dropped when it is taken. Of ended episodes that
were not taken, because another relabeler takes them, the latest `ENDED_KEPT` stay.
"""

from hindcast.actors.family_follower import look_back
from hindcast.actors.log_follower import LogFollower
from hindcast.actors.relabelers.base import PlayedEpisode
from hindcast.events.catalogue import (
    EpisodeAbandoned,
    EpisodeCancelled,
    EpisodeEnded,
    EpisodeRequested,
    EpisodeStarted,
    StepTaken,
)
from hindcast.events.envelope import Fact, Recorded
from hindcast.events.log.port import EventLog

FAMILIES = frozenset({"request", "episode", "step", "episode_end"})


ENDED_KEPT = 64
"""Ended episodes kept although not taken; one that was dropped is read backwards if it is taken later."""


class _Gathered:
    """The events of one episode, in any order."""

    def __init__(self) -> None:
        self.request: EpisodeRequested | None = None
        self.started: EpisodeStarted | None = None
        self.steps: dict[int, StepTaken] = {}

    def take(self, fact: Fact) -> None:
        match fact:
            case EpisodeRequested():
                self.request = fact
            case EpisodeStarted():
                self.started = fact
            case StepTaken():
                self.steps[fact.index] = fact
            case _:
                pass

    def played(self, ended: EpisodeEnded) -> PlayedEpisode | None:
        """The complete episode; None where part of it is missing."""
        if self.request is None or self.started is None or len(self.steps) != ended.steps:
            return None
        return PlayedEpisode(
            self.request.task,
            self.request.origin,
            self.started.instruction,
            self.started.renderer,
            [self.steps[index] for index in sorted(self.steps)],
            ended,
        )


class EpisodeMemory(LogFollower):
    """Episodes by name: those requested since the start and not taken."""

    def __init__(self, log: EventLog) -> None:
        super().__init__(log, FAMILIES)
        self._gathered: dict[str, _Gathered] = {}
        self._ended: dict[str, None] = {}
        """Ended episodes among them, oldest first."""

    def _take(self, recorded: Recorded) -> None:
        match recorded.fact:
            case EpisodeRequested(episode=name) as fact:
                self._gathered.setdefault(name, _Gathered()).take(fact)
            case EpisodeStarted(episode=name) | StepTaken(episode=name) as fact:
                if name in self._gathered:
                    self._gathered[name].take(fact)
            case EpisodeEnded(episode=name):
                if name in self._gathered:
                    self._ended[name] = None
                if len(self._ended) > ENDED_KEPT:
                    self.forget(next(iter(self._ended)))
            case EpisodeAbandoned(episode=name) | EpisodeCancelled(episode=name):
                self.forget(name)
            case _:
                pass

    def forget(self, name: str) -> None:
        """Drop an episode."""
        self._gathered.pop(name, None)
        self._ended.pop(name, None)

    async def find(self, ended: EpisodeEnded, *, position: int, stalled_s: float) -> PlayedEpisode | None:
        """The episode that ended at `position`, or None where the log lacks part of it. Raises BrokerUnreachable as `LogFollower`."""
        await self._known_before(position, stalled_s=stalled_s)
        gathered = self._gathered.get(ended.episode)
        if gathered is None:
            gathered = await self._look_back(ended.episode, before=position)
        return gathered.played(ended)

    async def _look_back(self, name: str, *, before: int) -> _Gathered:
        found = _Gathered()
        end = before - 1
        while found.request is None and end > 0:
            stretch, end = await look_back(self._log, until=end, families=FAMILIES)
            for recorded in stretch:
                if getattr(recorded.fact, "episode", "") == name:
                    found.take(recorded.fact)
        return found
