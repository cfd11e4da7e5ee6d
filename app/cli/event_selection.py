"""Selection of a log's events by type, episode, task, policy version and producer."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

import msgspec

from hindcast.core.domain.task import Task
from hindcast.core.errors import SettingsError
from hindcast.core.rl.combined_state import POLICY
from hindcast.core.text.nearest import advice
from hindcast.events.catalogue import (
    BatchPlanned,
    EpisodeEnded,
    EpisodeRequested,
    TaskProposed,
    WeightsAdopted,
    WeightsPublished,
)
from hindcast.events.envelope import Fact, Recorded
from hindcast.events.log.port import EventLog
from hindcast.events.log.reader import skim
from hindcast.events.registry import BY_CLASS, BY_NAME


class EventSelection(msgspec.Struct, kw_only=True):
    """Selects events. A task's selection includes its episodes' events, once `learn` has seen their requests."""

    types: tuple[str, ...] = ()
    """Names or patterns such as `episode.*`; empty: all."""
    episode: str | None = None
    task: str | None = None
    """Id, `store/buy`, `store/buy:3`, or a pattern."""
    policy: int | None = None
    """Policy version."""
    producer: str | None = None
    """Name or pattern such as `actor.*`."""
    _tasks: set[str] = msgspec.field(default_factory=set)
    """Ids of matching tasks."""
    _episodes: set[str] = msgspec.field(default_factory=set)
    """Episodes of the matching tasks."""

    def learn(self, fact: Fact) -> None:
        """Take in tasks and their episodes from one fact."""
        if self.task is not None and isinstance(fact, TaskProposed | EpisodeRequested):
            if _is_called(fact.task, self.task):
                self._tasks.add(fact.task.id)
            if isinstance(fact, EpisodeRequested) and fact.task.id in self._tasks:
                self._episodes.add(fact.episode)

    def takes(self, recorded: Recorded) -> bool:
        """Whether the selection contains an event. Call it for all events in order."""
        self.learn(recorded.fact)
        envelope = recorded.envelope
        if self.types and not any(fnmatchcase(envelope.type, pattern) for pattern in self.types):
            return False
        if self.producer is not None and not fnmatchcase(envelope.producer, self.producer):
            return False
        if self.policy is not None and not _is_of_version(recorded, self.policy):
            return False
        about = {envelope.entity, envelope.correlation, getattr(recorded.fact, "episode", None)}
        if self.episode is not None and self.episode not in about:
            return False
        return self.task is None or self._is_of_task(recorded.fact, about)

    def _is_of_task(self, fact: Fact, about: set[str | None]) -> bool:
        task = getattr(fact, "task", None)
        named = task.id if isinstance(task, Task) else getattr(fact, "task_id", None)
        return named in self._tasks or not self._episodes.isdisjoint(one for one in about if one)

    @property
    def everything(self) -> bool:
        """Whether the selection contains all events."""
        chosen = (self.episode, self.task, self.policy, self.producer)
        return not self.types and all(one is None for one in chosen)


def select(
    types: Sequence[str] | None,
    episode: str | None,
    producer: str | None = None,
    *,
    task: str | None = None,
    policy: int | None = None,
) -> EventSelection:
    """A selection with known event types.

    Raises:
        SettingsError: a type matches no event; names the nearest type.

    """
    for pattern in types or ():
        if not any(fnmatchcase(name, pattern) for name in BY_NAME):
            raise SettingsError(f"--type {pattern}: no event has this type; {advice(pattern, BY_NAME)}")
    return EventSelection(
        types=tuple(types or ()), episode=episode, task=task, policy=policy, producer=producer
    )


async def learn_tasks(log: EventLog, selection: EventSelection, *, until: int) -> None:
    """Read what a selection by task needs from events before the reading starts."""
    if selection.task is None:
        return
    for family in sorted({BY_CLASS[kind].family for kind in (TaskProposed, EpisodeRequested)}):
        async for recorded in skim(log, family=family, until=until):
            selection.learn(recorded.fact)


def _is_called(task: Task, pattern: str) -> bool:
    kind = f"{task.environment}/{task.family}"
    return any(fnmatchcase(name, pattern) for name in (task.id, kind, f"{kind}:{task.seed}"))


def _is_of_version(recorded: Recorded, version: int) -> bool:
    """Whether a policy version did this event, or the event created, used or adopted that version."""
    match recorded.fact:
        case EpisodeEnded(policy_versions=(low, high)):
            return low <= version <= high
        case WeightsPublished(model=model, version=own):
            return model == POLICY and own == version
        case WeightsAdopted(version=own) | BatchPlanned(version=own):
            return own == version
        case _:
            return recorded.envelope.policy_version == version
