"""Interfaces of judges, and how a verdict is reached under any failure: `undecided` with a reason, never a false failure.

A `Judge` decides from the evidence that an episode left. An `EvidenceModelJudge` also asks a model about the evidence.
An `EpisodeModelJudge` reads the episode: its instruction, answers and final page.

Invariant "Verdicts are facts about a judge": a verdict names its judge, and exists at most once per episode, judge and
version.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar, runtime_checkable

import msgspec

from hindcast.actors.episodes.time_limit import limited
from hindcast.actors.judges.episode_transcript import EpisodeTranscript
from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.domain.task import Task
from hindcast.core.errors import HindcastError
from hindcast.events.catalogue import EpisodeEnded
from hindcast.events.catalogue.consulted import Consulted
from hindcast.events.catalogue.verdict import JudgeIdentity, Reading
from hindcast.events.log.port import EventLog

Said = TypeVar("Said")

NO_PAGE = "the page that the episode ended on is not kept any more"
"""Reason of an undecided model judge."""


class Opinion(msgspec.Struct, frozen=True, kw_only=True):
    """A judgment, with what a model judge read or asked to reach it."""

    judgment: Judgment
    reading: Reading | None = None
    consulted: Consulted | None = None
    may_pass: bool = False
    """It is undecided because a model is unreachable now; a later attempt may decide."""


class Judge(Protocol):
    """Decides whether an episode reached its goal. Runs in a thread; keeps no state between episodes."""

    @property
    def identity(self) -> JudgeIdentity:
        """Name and version of this judge."""
        ...

    def judge(self, task: Task, evidence: Evidence) -> Judgment:
        """Return the judgment. May raise anything: the episode is then undecided."""
        ...


@runtime_checkable
class EpisodeModelJudge(Protocol):
    """A judge that reads the episode. Its version never changes during its lifetime."""

    @property
    def identity(self) -> JudgeIdentity:
        """Name and version of this judge."""
        ...

    async def story_of(self, log: EventLog, ended: EpisodeEnded, *, before: int) -> EpisodeTranscript | None:
        """Read the transcript of an episode that ended at position `before`; see `actors.judges.episode_transcript`."""
        ...

    async def read(self, story: EpisodeTranscript) -> Opinion:
        """Return the opinion. May raise anything: the episode is then undecided."""
        ...


@runtime_checkable
class EvidenceModelJudge(Protocol):
    """A judge of the evidence that asks a model what the rules cannot decide."""

    @property
    def identity(self) -> JudgeIdentity:
        """Name and version of this judge."""
        ...

    async def ask(self, task: Task, evidence: Evidence) -> Opinion:
        """Return the opinion. May raise anything: the episode is then undecided."""
        ...


AnyJudge = Judge | EvidenceModelJudge | EpisodeModelJudge


class JudgeTimeout(Exception):
    """A judge took longer than `judge.timeout_s`."""


def undecided(reason: str) -> Judgment:
    """The judgment of a judge that cannot decide."""
    return Judgment(outcome="undecided", reward=0.0, reason=reason)


async def reach_judgment(
    judge: Judge, task: Task | None, evidence: Evidence, *, timeout_s: float
) -> Judgment:
    """Return the judge's judgment; `undecided` where task or evidence is missing or the judge fails.

    Raises:
        JudgeTimeout: no judgment within `timeout_s`; the caller records the wait and treats it as undecided.
    """
    lacking = _lacking(task, evidence)
    if task is None or lacking:
        return undecided(lacking)
    judgment = await _in_time(judge, asyncio.to_thread(judge.judge, task, evidence), timeout_s=timeout_s)
    if isinstance(judgment, str):
        return undecided(judgment)
    if judgment.outcome == "undecided":
        return undecided(judgment.reason)
    if not 0.0 <= judgment.reward <= 1.0:
        return undecided(f"{judge.identity.name} gave the reward {judgment.reward}, which is not in [0, 1]")
    return judgment


async def reach_answer(
    asker: EvidenceModelJudge, task: Task | None, evidence: Evidence, *, timeout_s: float
) -> Opinion:
    """Return the opinion of a judge that asks a model; `undecided` where task or evidence is missing or it fails.

    Raises:
        JudgeTimeout: as `reach_judgment`.
    """
    lacking = _lacking(task, evidence)
    if task is None or lacking:
        return Opinion(judgment=undecided(lacking))
    opinion = await _in_time(asker, asker.ask(task, evidence), timeout_s=timeout_s)
    return Opinion(judgment=undecided(opinion)) if isinstance(opinion, str) else opinion


def _lacking(task: Task | None, evidence: Evidence) -> str:
    """Why the episode cannot be judged; empty: it can."""
    if task is None:
        return "the task of this episode does not stand in the log before its end"
    if not evidence.probes and evidence.answer is None and not evidence.final_url:
        return "the episode left no evidence"
    return ""


async def reach_opinion(
    reader: EpisodeModelJudge, story: EpisodeTranscript | None, *, timeout_s: float
) -> Opinion:
    """Return the opinion of a judge that reads; `undecided` where there is no transcript or the judge fails.

    Raises:
        JudgeTimeout: as `reach_judgment`.
    """
    if story is None:
        return Opinion(
            judgment=undecided("the start of this episode does not stand in the log before its end")
        )
    opinion = await _in_time(reader, reader.read(story), timeout_s=timeout_s)
    return Opinion(judgment=undecided(opinion)) if isinstance(opinion, str) else opinion


async def _in_time(judge: AnyJudge, speaking: Coroutine[Any, Any, Said], *, timeout_s: float) -> Said | str:
    """Return the result, or the reason why there is none. Raises JudgeTimeout."""
    try:
        async with limited(timeout_s) as scope:
            return await speaking
    except TimeoutError as error:
        if scope.expired():
            raise JudgeTimeout from None
        return _failed(judge, error)
    except Exception as error:  # an evaluator's mistake must not become an agent's failure
        return _failed(judge, error)


def too_slow(judge: AnyJudge, timeout_s: float) -> Judgment:
    """The judgment of a judge that exceeded its time limit."""
    return undecided(f"{judge.identity.name} took longer than {timeout_s:g} s (judge.timeout_s)")


async def judge_in_time(
    judge: AnyJudge,
    task: Task | None,
    evidence: Evidence,
    story: EpisodeTranscript | None,
    *,
    timeout_s: float,
) -> Opinion:
    """Return a judge's opinion of the evidence or transcript; a timeout is `undecided` too.

    For callers that record no waits.
    """
    try:
        if isinstance(judge, EpisodeModelJudge):
            return await reach_opinion(judge, story, timeout_s=timeout_s)
        if isinstance(judge, EvidenceModelJudge):
            return await reach_answer(judge, task, evidence, timeout_s=timeout_s)
        return Opinion(judgment=await reach_judgment(judge, task, evidence, timeout_s=timeout_s))
    except JudgeTimeout:
        return Opinion(judgment=too_slow(judge, timeout_s))


def _failed(judge: AnyJudge, error: Exception) -> str:
    text = str(error) if isinstance(error, HindcastError) else f"{type(error).__name__}: {error}"
    return f"{judge.identity.name} could not evaluate the evidence ({text})"
