"""Folds a parent's log for a fork: the learner's state, open episodes, and ended episodes without a verdict."""

from contextlib import aclosing
from dataclasses import dataclass, field

from hindcast.actors.curriculum.leases import LeaseBook
from hindcast.core.domain.task import Task
from hindcast.core.errors import ForeignLog
from hindcast.events.catalogue import (
    BatchPlanned,
    EpisodeEnded,
    EpisodeJudged,
    EpisodeRequested,
    SamplesSwept,
)
from hindcast.events.envelope import Recorded
from hindcast.events.log.port import EventLog
from hindcast.events.log.reader import read
from hindcast.learner.buffer.replay_buffer import ReplayBuffer
from hindcast.learner.buffer.state import BufferState


@dataclass(slots=True)
class Prefix:
    """State of a log up to the fork position, as far as the fork must act on it."""

    buffer: BufferState
    leases: LeaseBook = field(default_factory=LeaseBook)
    tasks: dict[str, Task] = field(default_factory=dict)
    unjudged: dict[str, Recorded] = field(default_factory=dict)
    """Ended episodes that may be trained on, or that lack a verdict of one of the run's judges: episode -> its end."""
    spoken: dict[str, set[str]] = field(default_factory=dict)
    """Names of the judges with a verdict, by episode of `unjudged`."""


async def fold_prefix(log: EventLog, *, at: int) -> Prefix:
    """Fold a log up to position `at`.

    Raises:
        ForeignLog: it does not begin with run.started, or ends before.

    """
    projection = ReplayBuffer()
    prefix = Prefix(projection.initial())
    async with aclosing(read(log, after=0, until=at, strict=True)) as recordeds:
        async for recorded in recordeds:
            prefix.buffer = projection.apply(prefix.buffer, recorded)
            prefix.leases.apply(recorded)
            _take(prefix, recorded)
    _forget(prefix)
    if prefix.buffer.started is None or prefix.buffer.position != at:
        raise ForeignLog(
            f"run {log.run} cannot be forked at position {at}: its log goes up to {prefix.buffer.position}. "
            f"Run: hindcast run show {log.run}"
        )
    return prefix


def _take(prefix: Prefix, recorded: Recorded) -> None:
    match recorded.fact:
        case EpisodeRequested() as fact:
            prefix.tasks[fact.task.id] = fact.task
        case EpisodeEnded() as fact:
            prefix.unjudged[fact.episode] = recorded
        case EpisodeJudged() as fact if fact.episode in prefix.unjudged:
            spoken = prefix.spoken.setdefault(fact.episode, set())
            spoken.add(fact.judge.name)
        case BatchPlanned() | SamplesSwept():
            _forget(prefix)


def _forget(prefix: Prefix) -> None:
    """Drop episodes that need no verdict any more: judged, and no longer candidates for training."""
    judges = set(prefix.buffer.settings.judge.judges)
    for episode in [name for name in prefix.unjudged if name not in prefix.buffer.episodes]:
        if prefix.spoken.get(episode, set()) >= judges:
            del prefix.unjudged[episode], prefix.spoken[episode]
