"""What a judge is, and how a verdict is reached whatever happens: `undecided` with a reason, never a false failure.

There are judges of the evidence that an episode left, those among them who ask somebody else, and readers, who go by what
its agent was told, did and saw.

Invariant "Verdicts are facts about a judge": a verdict names who gave it, and exists at most once per episode, judge
and version.
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
"""Why a reader is undecided."""


class Opinion(msgspec.Struct, frozen=True, kw_only=True):
    """A judgment, and what a reader read or asked before it came to it."""

    judgment: Judgment
    reading: Reading | None = None
    consulted: Consulted | None = None
    may_pass: bool = False
    """It is undecided since somebody could not be asked now; a later try may tell."""


class Judge(Protocol):
    """Says whether an episode reached its goal. Runs in a thread; keeps no state between episodes."""

    @property
    def identity(self) -> JudgeIdentity:
        """Who speaks."""
        ...

    def judge(self, task: Task, evidence: Evidence) -> Judgment:
        """The judgment. May raise anything: the episode is then undecided."""
        ...


@runtime_checkable
class EpisodeModelJudge(Protocol):
    """A judge that reads the episode. It is of one version for as long as it lives."""

    @property
    def identity(self) -> JudgeIdentity:
        """Who speaks."""
        ...

    async def story_of(self, log: EventLog, ended: EpisodeEnded, *, before: int) -> EpisodeTranscript | None:
        """What there is to read of an episode whose end stands at position `before`; see `actors.judges.episode_transcript`."""
        ...

    async def read(self, story: EpisodeTranscript) -> Opinion:
        """The opinion. May raise anything: the episode is then undecided."""
        ...


@runtime_checkable
class EvidenceModelJudge(Protocol):
    """A judge of the evidence that asks somebody else what it cannot tell by itself."""

    @property
    def identity(self) -> JudgeIdentity:
        """Who speaks."""
        ...

    async def ask(self, task: Task, evidence: Evidence) -> Opinion:
        """The opinion. May raise anything: the episode is then undecided."""
        ...


AnyJudge = Judge | EvidenceModelJudge | EpisodeModelJudge


class JudgeTimeout(Exception):
    """A judge took longer than `judge.timeout_s`."""


def verdict_key(episode: str, judge: JudgeIdentity) -> str:
    """The entity of a verdict: its subject holds at most one."""
    return f"{episode}.{judge.name}.{judge.version}"


def undecided(reason: str) -> Judgment:
    """The judgment of a judge that cannot tell."""
    return Judgment(outcome="undecided", reward=0.0, reason=reason)


async def reach_judgment(
    judge: Judge, task: Task | None, evidence: Evidence, *, timeout_s: float
) -> Judgment:
    """What the judge says; `undecided` where task or evidence is missing or the judge fails.

    Raises:
        OutOfTime: no judgment within `timeout_s`; the caller records the wait and takes it as undecided.

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
    """What somebody says who asks; `undecided` where task or evidence is missing or that fails.

    Raises:
        OutOfTime: as `reach_judgment`.

    """
    lacking = _lacking(task, evidence)
    if task is None or lacking:
        return Opinion(judgment=undecided(lacking))
    opinion = await _in_time(asker, asker.ask(task, evidence), timeout_s=timeout_s)
    return Opinion(judgment=undecided(opinion)) if isinstance(opinion, str) else opinion


def _lacking(task: Task | None, evidence: Evidence) -> str:
    """Why there is nothing to judge; empty: there is."""
    if task is None:
        return "the task of this episode does not stand in the log before its end"
    if not evidence.probes and evidence.answer is None and not evidence.final_url:
        return "the episode left no evidence"
    return ""


async def reach_opinion(
    reader: EpisodeModelJudge, story: EpisodeTranscript | None, *, timeout_s: float
) -> Opinion:
    """What the reader says; `undecided` where there is nothing to read or the reader fails.

    Raises:
        OutOfTime: as `reach_judgment`.

    """
    if story is None:
        return Opinion(
            judgment=undecided("the start of this episode does not stand in the log before its end")
        )
    opinion = await _in_time(reader, reader.read(story), timeout_s=timeout_s)
    return Opinion(judgment=undecided(opinion)) if isinstance(opinion, str) else opinion


async def _in_time(judge: AnyJudge, speaking: Coroutine[Any, Any, Said], *, timeout_s: float) -> Said | str:
    """What is said, or why nothing is. Raises OutOfTime."""
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
    """The judgment of a judge that took longer."""
    return undecided(f"{judge.identity.name} took longer than {timeout_s:g} s (judge.timeout_s)")


async def judge_in_time(
    judge: AnyJudge,
    task: Task | None,
    evidence: Evidence,
    story: EpisodeTranscript | None,
    *,
    timeout_s: float,
) -> Opinion:
    """What a judge says of the evidence, or a reader of the story; `undecided` also where it is too slow.

    For those who record no waits.
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
