"""Assembles episodes from the log: a pure fold that holds running episodes and returns each when it ends.

Memory grows with the running episodes, not with the log. An episode that was abandoned or cancelled is dropped with its
terminal fact.
"""

from collections.abc import Container

import msgspec

from hindcast.events.catalogue import (
    EpisodeAbandoned,
    EpisodeCancelled,
    EpisodeEnded,
    EpisodeRequested,
    EpisodeStarted,
    StepTaken,
)
from hindcast.events.envelope import Recorded


class AssembledStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step and its position."""

    position: int
    occurred_ns: int
    fact: StepTaken


class AssembledEpisode(msgspec.Struct, frozen=True, kw_only=True):
    """One episode that ended by itself."""

    request: EpisodeRequested
    started: EpisodeStarted
    started_ns: int
    steps: tuple[AssembledStep, ...]
    ended: EpisodeEnded
    ended_ns: int
    position: int
    """Position of its end."""
    code_rev: str
    """Code revision of the actor that played it."""


class _UnderWay(msgspec.Struct, kw_only=True):
    request: EpisodeRequested
    started: EpisodeStarted | None = None
    started_ns: int = 0
    steps: list[AssembledStep] = msgspec.field(default_factory=list)


class EpisodeAssembler:
    """Assembles episodes; `take` every event in order."""

    def __init__(self, wanted: Container[str]) -> None:
        self._wanted = wanted
        self._under_way: dict[str, _UnderWay] = {}

    def take(self, recorded: Recorded) -> AssembledEpisode | None:
        """The episode that this event ends, if it is wanted; else None."""
        match recorded.fact:
            case EpisodeRequested() as fact if fact.episode in self._wanted:
                self._under_way[fact.episode] = _UnderWay(request=fact)
            case EpisodeStarted() as fact if fact.episode in self._under_way:
                begun = self._under_way[fact.episode]
                begun.started, begun.started_ns = fact, recorded.envelope.occurred_ns
            case StepTaken() as fact if fact.episode in self._under_way:
                step = AssembledStep(
                    position=recorded.position, occurred_ns=recorded.envelope.occurred_ns, fact=fact
                )
                self._under_way[fact.episode].steps.append(step)
            case EpisodeAbandoned() | EpisodeCancelled() as fact:
                self._under_way.pop(fact.episode, None)
            case EpisodeEnded() as fact:
                return self._end(recorded, fact)
        return None

    def _end(self, recorded: Recorded, fact: EpisodeEnded) -> AssembledEpisode | None:
        known = self._under_way.pop(fact.episode, None)
        if known is None or known.started is None:
            return None
        return AssembledEpisode(
            request=known.request,
            started=known.started,
            started_ns=known.started_ns,
            steps=tuple(known.steps),
            ended=fact,
            ended_ns=recorded.envelope.occurred_ns,
            position=recorded.position,
            code_rev=recorded.envelope.code_rev,
        )
