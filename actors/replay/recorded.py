"""Episodes assembled from their events in the log: all of them, some by name, or a seeded sample.

The sample is the episodes whose names rank lowest under the seed. So it is the same for every reader of the log, needs
one pass, and never holds more episodes than requested.
"""

import heapq
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field

import msgspec

from hindcast.core.domain.task import Task
from hindcast.core.errors import HindcastError
from hindcast.core.seeds import derive_seed
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
from hindcast.events.log.port import EventLog
from hindcast.events.log.reader import read

End = EpisodeEnded | EpisodeAbandoned | EpisodeCancelled


class NoSuchEpisode(HindcastError):
    """A requested episode is not in the log, or was never begun."""


class EpisodeSelection(msgspec.Struct, frozen=True, kw_only=True):
    """Which of a run's episodes are selected; every condition narrows."""

    episodes: frozenset[str] = frozenset()
    """Episodes by name; empty: any."""
    families: frozenset[str] = frozenset()
    """`find_price` or `store/find_price`; empty: any."""
    origin: str | None = None
    """`online`, `demonstration` or `evaluation`; None: any."""
    sample: int | None = None
    """Largest number of episodes, drawn by `seed`; None: all."""
    seed: int = 1

    def takes(self, request: EpisodeRequested) -> bool:
        """Whether an episode meets the conditions, apart from the sample."""
        task = request.task
        return (
            (not self.episodes or request.episode in self.episodes)
            and (not self.families or bool(self.families & {task.family, family_of(task)}))
            and self.origin in (None, request.origin)
        )


class RecordedStep(msgspec.Struct, frozen=True):
    """A step and its position in the log."""

    position: int
    fact: StepTaken


@dataclass(slots=True)
class RecordedEpisode:
    """An episode that was begun, as far as the log goes."""

    request: EpisodeRequested
    started: EpisodeStarted
    code_rev: str
    """Code revision of the actor that played it."""
    packages: dict[str, str]
    """Package versions at the start of the run, or of its fork."""
    steps: list[RecordedStep] = field(default_factory=list)
    end: End | None = None
    """Its end; None while the log has none."""
    end_id: str = ""
    """Id of the end's event."""
    ended: int = 0
    """Position of the end."""

    @property
    def name(self) -> str:
        """The episode's id."""
        return self.request.episode

    @property
    def family(self) -> str:
        """Environment and family, such as `store/find_price`."""
        return family_of(self.request.task)


def family_of(task: Task) -> str:
    """Environment and family, such as `store/find_price`."""
    return f"{task.environment}/{task.family}"


async def recorded_episodes(
    log: EventLog, wanted: EpisodeSelection, *, steps: bool = True
) -> AsyncGenerator[RecordedEpisode, None]:
    """Yield the selected episodes that were begun: each once its end is read, those of a sample after the whole log.

    Without `steps`, no steps are kept. Late steps of an ended episode are left out: an actor may continue for a while with an
    episode that it has lost.

    Raises:
        NoSuchEpisode: an episode requested by name is not there.
        CorruptEvent, UnknownVersion, ForeignLog: see `events.log.reader.read`.
    """
    gathering = _Gathering(wanted, steps=steps)
    seen: set[str] = set()
    async with aclosing(read(log, after=0, strict=False)) as recordeds:
        async for recorded in recordeds:
            done = gathering.take(recorded)
            if done is not None and wanted.sample is None:
                seen.add(done.name)
                del gathering.held[done.name]
                yield done
    seen |= gathering.held.keys()
    missing = sorted(wanted.episodes - seen)
    if missing and wanted.sample is None:
        raise NoSuchEpisode(
            f"run {log.run} has begun no episode {missing[0]!r} that was asked for"
            f"{f', nor {len(missing) - 1} others' if len(missing) > 1 else ''}. Run: hindcast episode list"
        )
    for episode in gathering.held.values():
        yield episode


class _Gathering:
    """Assembles episodes from their events."""

    def __init__(self, wanted: EpisodeSelection, *, steps: bool) -> None:
        self._wanted = wanted
        self._steps = steps
        self._requests: dict[str, EpisodeRequested] = {}
        """Requests that are not begun yet."""
        self._ranks: list[tuple[int, str]] = []
        """A heap of the sample, the highest rank first."""
        self._packages: dict[str, str] = {}
        self.held: dict[str, RecordedEpisode] = {}

    def take(self, recorded: Recorded) -> RecordedEpisode | None:
        """Apply one event; returns the episode that it completes."""
        match recorded.fact:
            case RunStarted(packages=packages) | RunForked(start=RunStarted(packages=packages)):
                self._packages = packages
            case EpisodeRequested() as fact if self._wanted.takes(fact):
                self._requests[fact.episode] = fact
            case EpisodeStarted() as fact:
                request = self._requests.pop(fact.episode, None)
                if request is not None:
                    self._hold(RecordedEpisode(request, fact, recorded.envelope.code_rev, self._packages))
            case StepTaken() as fact if self._steps:
                episode = self.held.get(fact.episode)
                if episode is not None and episode.end is None:
                    episode.steps.append(RecordedStep(recorded.position, fact))
            case EpisodeEnded() | EpisodeAbandoned() | EpisodeCancelled() as fact:
                self._requests.pop(fact.episode, None)
                episode = self.held.get(fact.episode)
                if episode is not None and episode.end is None:
                    episode.end, episode.end_id, episode.ended = fact, recorded.envelope.id, recorded.position
                    return episode
        return None

    def _hold(self, episode: RecordedEpisode) -> None:
        self.held[episode.name] = episode
        if self._wanted.sample is None:
            return
        heapq.heappush(self._ranks, (-derive_seed(self._wanted.seed, "replay", episode.name), episode.name))
        if len(self._ranks) > self._wanted.sample:
            del self.held[heapq.heappop(self._ranks)[1]]
