"""What a judge is, and how a verdict is reached whatever happens: `undecided` with a reason, never a false failure.

Invariant "Verdicts are facts about a judge": a verdict names who gave it, and exists at most once per episode, judge
and version.
"""

import asyncio
from typing import Protocol

from core.errors import HindcastError
from core.evidence import Evidence, Judgment
from core.task import Task
from events.catalogue.verdict import JudgeIdentity


class Judge(Protocol):
    """Says whether an episode reached its goal. Runs in a thread; keeps no state between episodes."""

    @property
    def identity(self) -> JudgeIdentity:
        """Who speaks."""
        ...

    def judge(self, task: Task, evidence: Evidence) -> Judgment:
        """The judgment. May raise anything: the episode is then undecided."""
        ...


class OutOfTime(Exception):
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
    if task is None:
        return undecided("the task of this episode does not stand in the log before its end")
    if not evidence.probes and evidence.answer is None and not evidence.final_url:
        return undecided("the episode left no evidence")
    scope = asyncio.timeout(timeout_s)
    try:
        async with scope:
            judgment = await asyncio.to_thread(judge.judge, task, evidence)
    except TimeoutError as error:
        if scope.expired():
            raise OutOfTime from None
        return undecided(_failed(judge, error))
    except Exception as error:  # an evaluator's mistake must not become an agent's failure
        return undecided(_failed(judge, error))
    if judgment.outcome == "undecided":
        return undecided(judgment.reason)
    if not 0.0 <= judgment.reward <= 1.0:
        return undecided(f"{judge.identity.name} gave the reward {judgment.reward}, which is not in [0, 1]")
    return judgment


def too_slow(judge: Judge, timeout_s: float) -> Judgment:
    """The judgment of a judge that took longer."""
    return undecided(f"{judge.identity.name} took longer than {timeout_s:g} s (judge.timeout_s)")


async def judge_in_time(judge: Judge, task: Task | None, evidence: Evidence, *, timeout_s: float) -> Judgment:
    """What the judge says; `undecided` also where it is too slow. For those who record no waits."""
    try:
        return await reach_judgment(judge, task, evidence, timeout_s=timeout_s)
    except OutOfTime:
        return too_slow(judge, timeout_s)


def _failed(judge: Judge, error: Exception) -> str:
    text = str(error) if isinstance(error, HindcastError) else f"{type(error).__name__}: {error}"
    return f"{judge.identity.name} could not evaluate the evidence ({text})"
