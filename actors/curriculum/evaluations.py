"""Evaluations of the run's policy, as a fold of the log: which one is open, and what became of each of its episodes.

    evaluation.started ──> OpenEvaluation ── episode.requested … episode.judged ──> evaluation.finished

At most one evaluation is open, so an episode of origin `evaluation` belongs to the open one; its task and temperature say
which of its members it plays. A member is played again once if its episode broke. What is started and requested follows from
this state: see `evaluation_plan`.
"""

from dataclasses import dataclass, field
from typing import Literal

import msgspec

from hindcast.events.catalogue import (
    EpisodeAbandoned,
    EpisodeCancelled,
    EpisodeEnded,
    EpisodeJudged,
    EpisodeRequested,
    EpisodeStarted,
    EvaluationFinished,
    EvaluationStarted,
)
from hindcast.events.catalogue.operation import DRAIN
from hindcast.events.envelope import Recorded

EVALUATION = "evaluation"
"""Origin of evaluation episodes."""
ATTEMPTS = 2
"""Started attempts at one member; after that it is lost."""

Standing = Literal["owed", "running", "ended", "success", "failure", "lost"]
"""`ended`: waits for its verdict; `lost`: there will be no verdict that decides."""


class EvaluationMember(msgspec.Struct):
    """One task at one temperature."""

    standing: Standing = "owed"
    attempt: int = 0
    """Attempt number of the episode, or of the owed one."""
    started: int = 0
    """Attempts that an actor began."""
    episode: str | None = None
    """Latest episode requested for it."""
    reward: float = 0.0


class OpenEvaluation(msgspec.Struct):
    """An evaluation that is going on."""

    number: int
    version: int
    tasks: tuple[str, ...]
    """Names of the tasks (`Task.name`)."""
    temperatures: tuple[float, ...]
    members: list[EvaluationMember]
    """For each task, one member at each temperature."""
    started_ns: int
    """Time of `evaluation.started`, in nanoseconds since 1970."""
    judged_ns: int
    """Time of the latest verdict; before the first, that of the start."""
    version_low: int | None = None
    """Lowest policy version that sampled a token of its episodes."""
    version_high: int | None = None

    def index_of(self, task: int, temperature: int) -> int:
        """Index of the member with this index of a task and of a temperature."""
        return task * len(self.temperatures) + temperature

    def at(self, index: int) -> tuple[str, float]:
        """Task and temperature of a member."""
        task, temperature = divmod(index, len(self.temperatures))
        return self.tasks[task], self.temperatures[temperature]

    def standing(self, *standings: Standing) -> list[int]:
        """Indexes of the members with one of the given standings."""
        return [index for index, member in enumerate(self.members) if member.standing in standings]


@dataclass(slots=True)
class Evaluations:
    """The evaluations so far. Only `apply` changes it."""

    last: int = 0
    """Position of the last event of the `evaluation` family: what the next one expects."""
    begun: int = 0
    """Evaluations started so far."""
    version: int = -1
    """Version that the latest one is of; -1: there was none yet."""
    covered: int = -1
    """Newest version that the latest one is of, or that played all of it; -1: there was none yet."""
    passed: int = -1
    """Newest version when the latest one was finished: it stands for all versions up to this one."""
    open: OpenEvaluation | None = None
    places: dict[str, int] = field(default_factory=dict)
    """Episode -> index of its member, for the open evaluation."""
    requested: int = 0
    """Evaluation episodes requested so far."""
    requested_in_all: int = 0
    """Episodes requested so far, of any origin."""

    def apply(self, recorded: Recorded, *, judge: str, newest: int) -> None:
        """Fold one event. `judge`: the one whose verdicts count. `newest`: the newest policy version."""
        match recorded.fact:
            case EvaluationStarted() as fact:
                self.last = recorded.position
                self._start(fact, at_ns=recorded.envelope.occurred_ns)
            case EvaluationFinished() as fact:
                self.last = recorded.position
                self.covered = max(fact.version, fact.version_low or 0)
                self.open, self.passed = None, newest
                self.places.clear()
            case EpisodeRequested() as fact:
                self.requested_in_all += 1
                if fact.origin == EVALUATION:
                    self.requested += 1
                    self._request(fact)
            case EpisodeStarted(episode=episode) if member := self._running(episode):
                member.started += 1
            case EpisodeEnded() as fact if member := self._running(fact.episode):
                member.standing = "ended"
                self._widen(fact.policy_versions)
            case EpisodeAbandoned() | EpisodeCancelled() as fact if member := self._running(fact.episode):
                _lose(member, fact)
                del self.places[fact.episode]
            case EpisodeJudged() as fact if fact.judge.name == judge:
                self._judge(fact, at_ns=recorded.envelope.occurred_ns)

    def _start(self, fact: EvaluationStarted, *, at_ns: int) -> None:
        self.begun = fact.number + 1
        self.version = self.covered = self.passed = fact.version
        self.open = OpenEvaluation(
            number=fact.number,
            version=fact.version,
            tasks=fact.tasks,
            temperatures=fact.temperatures,
            members=[EvaluationMember() for _ in range(len(fact.tasks) * len(fact.temperatures))],
            started_ns=at_ns,
            judged_ns=at_ns,
        )
        self.places.clear()

    def _request(self, fact: EpisodeRequested) -> None:
        evaluation, name = self.open, fact.task.name
        if (
            evaluation is None
            or name not in evaluation.tasks
            or fact.temperature not in evaluation.temperatures
        ):
            return
        index = evaluation.index_of(
            evaluation.tasks.index(name), evaluation.temperatures.index(fact.temperature)
        )
        member = evaluation.members[index]
        member.standing, member.attempt, member.episode = "running", fact.attempt, fact.episode
        self.places[fact.episode] = index

    def _running(self, episode: str) -> EvaluationMember | None:
        index = self.places.get(episode)
        if index is None or self.open is None:
            return None
        member = self.open.members[index]
        return member if member.standing == "running" else None

    def _widen(self, versions: tuple[int, int]) -> None:
        evaluation = self.open
        assert evaluation is not None, "an episode of the open evaluation ended"
        low, high = versions
        evaluation.version_low = low if evaluation.version_low is None else min(low, evaluation.version_low)
        evaluation.version_high = (
            high if evaluation.version_high is None else max(high, evaluation.version_high)
        )

    def _judge(self, fact: EpisodeJudged, *, at_ns: int) -> None:
        index = self.places.get(fact.episode)
        if index is None or self.open is None or self.open.members[index].standing != "ended":
            return
        member, outcome = self.open.members[index], fact.judgment.outcome
        member.standing = "lost" if outcome == "undecided" else outcome
        member.reward = fact.judgment.reward
        self.open.judged_ns = max(at_ns, self.open.judged_ns)


def _lose(member: EvaluationMember, fact: EpisodeAbandoned | EpisodeCancelled) -> None:
    """Play the member again unless it was started often enough, or a person cancelled it.

    A drain cancels what nobody has started; the evaluation continues when the run is resumed.
    """
    is_played_again = (
        fact.reason == DRAIN if isinstance(fact, EpisodeCancelled) else member.started < ATTEMPTS
    )
    member.episode = None
    member.standing = "owed" if is_played_again else "lost"
    member.attempt += is_played_again
