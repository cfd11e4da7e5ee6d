"""Reassembles episodes from their events, in the order of the log. Pure: no clock and no reads.

    episode.requested -> episode.started -> step.taken … -> episode.ended | abandoned | cancelled
         kept               running           appended          handed out, then forgotten

Invariant "Every episode ends once": an episode that started is handed out once, with its end. Later events of it are
ignored, such as steps of an actor that has lost it. Memory grows with open episodes, not with the log.
"""

from collections.abc import Callable

import msgspec

from hindcast.core.domain.task import Task
from hindcast.events.catalogue import (
    EpisodeAbandoned,
    EpisodeCancelled,
    EpisodeEnded,
    EpisodeRequested,
    EpisodeStarted,
    RunForked,
    RunStarted,
    StepTaken,
)
from hindcast.events.envelope import Recorded

EPISODE_FAMILIES = frozenset({"request", "episode", "step", "episode_end"})
"""Families of the events of episodes; `packages` stays empty where no others are read."""

End = EpisodeEnded | EpisodeAbandoned | EpisodeCancelled


class AssembledStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step and its place in the log."""

    position: int
    occurred_ns: int
    fact: StepTaken


class AssembledEpisode(msgspec.Struct, kw_only=True):
    """An episode that started, as far as its events were read."""

    request: EpisodeRequested
    started: EpisodeStarted
    started_ns: int
    code_rev: str
    """Code revision of the actor that played it."""
    packages: dict[str, str]
    """Package versions at the start of the run, or of its fork."""
    steps: list[AssembledStep] = msgspec.field(default_factory=list)
    end: End | None = None
    """None: it has not ended."""
    end_id: str = ""
    """Id of the end's event."""
    position: int = 0
    """Position of the end."""
    ended_ns: int = 0

    @property
    def name(self) -> str:
        """The episode's id."""
        return self.request.episode

    @property
    def task(self) -> Task:
        """The task that it attempts."""
        return self.request.task

    @property
    def family(self) -> str:
        """Environment and family of its task, such as `store/find_price`."""
        return self.task.full_family

    @property
    def ended(self) -> EpisodeEnded:
        """The end of an episode that ended by itself."""
        assert isinstance(self.end, EpisodeEnded), f"{self.name} did not end by itself"
        return self.end

    @property
    def is_complete(self) -> bool:
        """Whether it ended by itself and all its steps were read."""
        return isinstance(self.end, EpisodeEnded) and len(self.steps) == self.end.steps


class EpisodeAssembler:
    """Assembles episodes from events in the order of the log."""

    def __init__(
        self, *, wants: Callable[[EpisodeRequested], bool] = lambda request: True, steps: bool = True
    ) -> None:
        """`wants`: which episodes are assembled. `steps`: whether steps are kept."""
        self._wants = wants
        self._steps = steps
        self._requests: dict[str, EpisodeRequested] = {}
        """Requests of episodes that have not started."""
        self._packages: dict[str, str] = {}
        self.running: dict[str, AssembledEpisode] = {}
        """Started episodes that have not ended, in the order of their starts."""

    @property
    def open_episodes(self) -> set[str]:
        """Names of the episodes kept: requested or started, and not ended."""
        return self._requests.keys() | self.running.keys()

    def take(self, recorded: Recorded) -> AssembledEpisode | None:
        """Apply one event. Returns the episode that it ends, whatever the end."""
        match recorded.fact:
            case RunStarted(packages=packages) | RunForked(start=RunStarted(packages=packages)):
                self._packages = packages
            case EpisodeRequested() as fact if self._wants(fact):
                self._requests[fact.episode] = fact
            case EpisodeStarted() as fact if fact.episode in self._requests:
                self.running[fact.episode] = AssembledEpisode(
                    request=self._requests.pop(fact.episode),
                    started=fact,
                    started_ns=recorded.envelope.occurred_ns,
                    code_rev=recorded.envelope.code_rev,
                    packages=self._packages,
                )
            case StepTaken() as fact if self._steps and fact.episode in self.running:
                self.running[fact.episode].steps.append(
                    AssembledStep(
                        position=recorded.position, occurred_ns=recorded.envelope.occurred_ns, fact=fact
                    )
                )
            case EpisodeEnded() | EpisodeAbandoned() | EpisodeCancelled() as fact:
                return self._end(recorded, fact)
        return None

    def _end(self, recorded: Recorded, end: End) -> AssembledEpisode | None:
        episode = self.running.get(end.episode)
        self.forget(end.episode)
        if episode is not None:
            episode.end, episode.end_id = end, recorded.envelope.id
            episode.position, episode.ended_ns = recorded.position, recorded.envelope.occurred_ns
        return episode

    def forget(self, episode: str) -> None:
        """Drop an open episode; its later events are ignored."""
        self._requests.pop(episode, None)
        self.running.pop(episode, None)
