"""What a run's log says about data to be left out of it: which episodes, what they were used for, and what that costs."""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from hindcast.core.domain.arrays import unpack_ids
from hindcast.core.errors import SettingsError
from hindcast.core.rl.combined_state import POLICY
from hindcast.events.catalogue import (
    NEVER_TRAINED,
    BatchPlanned,
    EpisodeEnded,
    EpisodeJudged,
    EpisodeRequested,
    ReplayScored,
    SamplesSwept,
    StepTaken,
    UpdateApplied,
    WeightsPublished,
)
from hindcast.events.envelope import Recorded
from hindcast.events.log.port import EventLog
from hindcast.events.log.reader import read
from hindcast.learner.buffer.replay_buffer import ReplayBuffer

Decision = SamplesSwept | ReplayScored | BatchPlanned


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What is left out: everything that one of its parts names."""

    episodes: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    """As in `store/buy`, or `buy`."""
    tasks: tuple[str, ...] = ()
    """Names of tasks."""
    versions: tuple[int, ...] = ()
    """Policy versions: episodes with a token that one of them sampled."""
    query: str = ""
    """The question that gave the episodes, if one did."""

    def in_words(self) -> str:
        """The choice as it is recorded."""
        parts = [f"family {name}" for name in self.families]
        parts += [f"task {name}" for name in self.tasks]
        parts += [f"policy {version}" for version in self.versions]
        if self.query:
            parts.append(f"query {self.query}")
        elif self.episodes:
            few = ", ".join(self.episodes[:3])
            more = f" and {len(self.episodes) - 3} more" if len(self.episodes) > 3 else ""
            parts.append(f"episode {few}{more}")
        return "; ".join(parts) or "nothing"


@dataclass(slots=True)
class Survey:
    """What a run's log says that matters for deriving another from it."""

    last: int = 0
    digest: bytes = b""
    """Rolling digest of the whole log."""
    left_out: dict[str, None] = field(default_factory=dict)
    """Episodes to leave out, in the order of their requests."""
    decisions: list[tuple[int, Decision]] = field(default_factory=list)
    """Position up to which the log was known, and the decision, in order."""
    evaluation: set[str] = field(default_factory=set)
    """Episodes of evaluations."""
    verdicts: dict[str, Recorded] = field(default_factory=dict)
    """First verdicts of the other judge, by episode."""
    affected: set[str] = field(default_factory=set)
    """Episodes whose use is another: left out, or judged otherwise."""
    published: dict[int, str] = field(default_factory=dict)
    """Digest of the policy's weights, by version."""
    costs: list[tuple[int, float]] = field(default_factory=list)
    """Position and recorded CPU seconds of each update."""

    def begin(self, *, everything: bool) -> int | None:
        """The position up to which both logs are the same; None: no decision is affected. `everything`: of the first batch."""
        for as_of, decision in self.decisions:
            match decision:
                case BatchPlanned(episodes=planned):
                    if everything or any(one.episode in self.affected for one in planned):
                        return as_of
                case SamplesSwept(episodes=swept) if self.verdicts:
                    if not self.affected.isdisjoint(swept):
                        return as_of
        return None


async def survey(log: EventLog, choice: Choice, *, judge: str) -> Survey:
    """Read a run's log once. `judge`: whose verdicts replace the training judge's; empty: nobody's.

    Raises:
        SettingsError: nothing fits a part of the choice, or the judge gave no verdict.
    """
    found, buffer = Survey(), ReplayBuffer()
    state = buffer.initial()
    families, tasks = set[object](choice.families), set[object](choice.tasks)
    versions = set[object](choice.versions)
    unmet: set[object] = {*families, *tasks, *versions, *choice.episodes}
    named, ended = set[object](choice.episodes), list[str]()
    trained: dict[str, tuple[str, float]] = {}
    async with aclosing(read(log, after=0, strict=True)) as recordeds:
        async for recorded in recordeds:
            state = buffer.apply(state, recorded)
            match recorded.fact:
                case EpisodeRequested() as fact:
                    if fact.origin in NEVER_TRAINED:
                        found.evaluation.add(fact.episode)
                        continue
                    family = f"{fact.task.environment}/{fact.task.family}"
                    keys = {fact.episode} & named | {family, fact.task.family} & families
                    keys |= {fact.task.name, fact.task.id} & tasks
                    if keys:
                        found.left_out[fact.episode] = None
                        unmet -= keys
                case StepTaken() as fact if versions and fact.episode not in found.evaluation:
                    sampled = versions & set(unpack_ids(fact.versions).tolist())
                    if sampled:
                        found.left_out[fact.episode] = None
                        unmet -= sampled
                case EpisodeEnded() as fact if fact.episode not in found.evaluation:
                    ended.append(fact.episode)
                case EpisodeJudged() as fact:
                    if fact.judge.name == judge:
                        found.verdicts.setdefault(fact.episode, recorded)
                    if fact.judge.name == state.settings.judge.judges[0]:
                        verdict = fact.judgment.outcome, fact.judgment.reward
                        trained.setdefault(fact.episode, verdict)
                case SamplesSwept() | BatchPlanned() as fact:
                    as_of = recorded.position - 1 if fact.as_of is None else fact.as_of
                    found.decisions.append((as_of, fact))
                case ReplayScored() as fact:
                    found.decisions.append((recorded.position - 1, fact))
                case UpdateApplied(cpu_ms=cpu_ms):
                    found.costs.append((recorded.position, cpu_ms / 1000))
                case WeightsPublished(model=model, version=version, weights=weights) if model == POLICY:
                    found.published[version] = weights.sha256
    if unmet:
        raise SettingsError(
            f"run {log.run} has no episode of {', '.join(sorted(map(str, unmet)))}. Run: hindcast episode list {log.run}"
        )
    if judge:
        _compare_verdicts(found, ended, trained, judge=judge, run=log.run)
    found.affected |= found.left_out.keys()
    found.last, found.digest = state.position, state.digest.value
    return found


def _compare_verdicts(
    found: Survey, ended: Sequence[str], trained: dict[str, tuple[str, float]], *, judge: str, run: str
) -> None:
    """Find the episodes that another judge judges otherwise; those that it did not judge are left out."""
    if not found.verdicts:
        raise SettingsError(
            f"no verdict of {judge!r} is in the log of run {run}. Run: hindcast rejudge {run} --judge {judge} --save"
        )
    for episode in ended:
        recorded = found.verdicts.get(episode)
        if recorded is None:
            found.left_out[episode] = None
            continue
        fact = recorded.fact
        assert isinstance(fact, EpisodeJudged)
        if trained.get(episode) != (fact.judgment.outcome, fact.judgment.reward):
            found.affected.add(episode)


async def parts_of(log: EventLog, each: Literal["family", "task", "policy"]) -> dict[str, Choice]:
    """Choices that leave out one family, task or policy version that the run was trained on, by what it is."""
    of_episode: dict[str, tuple[str, str]] = {}
    sampled: dict[str, set[int]] = {}
    found: dict[str, Choice] = {}
    async with aclosing(read(log, after=0, strict=True)) as recordeds:
        async for recorded in recordeds:
            match recorded.fact:
                case EpisodeRequested() as fact:
                    of_episode[fact.episode] = (
                        f"{fact.task.environment}/{fact.task.family}",
                        fact.task.name,
                    )
                case StepTaken() as fact:
                    sampled.setdefault(fact.episode, set()).update(unpack_ids(fact.versions).tolist())
                case BatchPlanned(episodes=planned):
                    for name in (one.episode for one in planned):
                        family, task = of_episode[name]
                        if each == "family":
                            found[family] = Choice(families=(family,))
                        elif each == "task":
                            found[task] = Choice(tasks=(task,))
                        else:
                            own = {one for one in sampled.get(name, ()) if one >= 0}
                            found |= {f"policy {one}": Choice(versions=(one,)) for one in own}
    return dict(sorted(found.items()))


def cost(found: Survey) -> tuple[int, int, float]:
    """What deriving costs: position of the first difference (-1: there is none), and number and recorded CPU seconds of the
    updates after it."""
    at = found.begin(everything=not found.affected)
    if at is None:
        return -1, 0, 0.0
    later = [cpu_s for position, cpu_s in found.costs if position > at]
    return at, len(later), sum(later)
