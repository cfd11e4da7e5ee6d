"""The interface of judges, and how a verdict is reached under any failure: `undecided` with a reason, never a false failure.

    JudgedEpisode ──> Judge.judge ──> Verdict ──> episode.judged

Invariant "Verdicts are facts about a judge": a verdict names its judge, and exists at most once per episode, judge and
version.
"""

import inspect
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from hindcast.actors.episodes.time_limit import limited
from hindcast.actors.judges.judged_episode import CannotDecide, JudgedEpisode
from hindcast.core.domain.evidence import Judgment
from hindcast.core.errors import BlobsUnreachable, BrokerUnreachable, CorruptEvent, HindcastError
from hindcast.events.catalogue import EpisodeJudged
from hindcast.events.catalogue.consulted import Consulted
from hindcast.events.catalogue.verdict import JudgeIdentity, Reading
from hindcast.events.log.port import EventLog


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A judgment of one episode, with what the judge read or asked to reach it."""

    judgment: Judgment
    reading: Reading | None = None
    """What a model that this process computes read."""
    consulted: Consulted | None = None
    """What was asked of an endpoint, and its cost."""
    may_pass: bool = False
    """It is undecided because a model is unreachable now; a later attempt may decide."""
    timed_out: bool = False
    """It is undecided because the judge exceeded its time limit."""

    def as_fact(self, judge: JudgeIdentity, *, episode: str, task_id: str) -> EpisodeJudged:
        """The event that records it."""
        return EpisodeJudged(
            episode=episode,
            task_id=task_id,
            judge=judge,
            judgment=self.judgment,
            reading=self.reading,
            consulted=self.consulted,
        )


class Judge(Protocol):
    """Decides whether an episode reached its goal. Keeps no state between episodes; judges several at the same time."""

    @property
    def identity(self) -> JudgeIdentity:
        """Name and version, which never change during its lifetime."""
        ...

    @property
    def asks_model(self) -> bool:
        """Whether a model decides, so that an attempt that takes too long may succeed later."""
        ...

    async def judge(self, episode: JudgedEpisode) -> Verdict:
        """Return the verdict. May raise anything: the episode is then undecided."""
        ...


def judge_problems(judge: Any, name: str) -> list[str]:
    """What is wrong with an opened judge that the settings call `name`, one sentence each."""
    problems = []
    identity = getattr(judge, "identity", None)
    if not isinstance(identity, JudgeIdentity):
        problems.append(
            f"its identity is {identity!r}, not a hindcast.events.catalogue.verdict.JudgeIdentity"
        )
    elif identity.name != name:
        problems.append(
            f"it signs its verdicts as {identity.name!r}, so that no run would find them: its identity must have the name that "
            "it is opened with (JudgeContext.name)"
        )
    if not isinstance(getattr(judge, "asks_model", None), bool):
        problems.append("it does not say whether a model decides (asks_model, True or False)")
    if not inspect.iscoroutinefunction(getattr(judge, "judge", None)):
        problems.append("it has no `async def judge(self, episode)`")
    return problems


class JudgeVersions(Protocol):
    """The versions of a judge that the run itself trains: each published version replaces the one before."""

    @property
    def name(self) -> str:
        """Name of the judge."""
        ...

    async def begin(self, log: EventLog) -> Judge:
        """The newest version that the log holds now. Called once, before `follow`."""
        ...

    async def follow(self, log: EventLog, replace: Callable[[Judge], None]) -> None:
        """Pass every newer version to `replace` as it is published, forever."""
        ...


def undecided(reason: str, *, may_pass: bool = False, consulted: Consulted | None = None) -> Verdict:
    """The verdict of a judge that cannot decide."""
    judgment = Judgment(outcome="undecided", reward=0.0, reason=reason)
    return Verdict(judgment=judgment, may_pass=may_pass, consulted=consulted)


async def reach_verdict(judge: Judge, episode: JudgedEpisode, *, timeout_s: float) -> Verdict:
    """Return a judge's verdict; undecided where it fails or takes longer than `timeout_s`.

    Raises:
        BrokerUnreachable, BlobsUnreachable, CorruptEvent: the episode cannot be read now; that is no verdict.
    """
    name = judge.identity.name
    try:
        async with limited(timeout_s) as scope:
            verdict = await judge.judge(episode)
    except CannotDecide as error:
        return undecided(str(error))
    except (BrokerUnreachable, BlobsUnreachable, CorruptEvent):
        raise
    except Exception as error:  # a judge's mistake must not become an agent's failure
        if isinstance(error, TimeoutError) and scope.expired():
            slow = undecided(f"{name} took longer than {timeout_s:g} s (judge.timeout_s)")
            return msgspec.structs.replace(slow, timed_out=True)
        text = str(error) if isinstance(error, HindcastError) else f"{type(error).__name__}: {error}"
        return undecided(f"{name} could not evaluate the evidence ({text})")
    judgment = verdict.judgment
    if judgment.outcome == "undecided":
        return msgspec.structs.replace(verdict, judgment=msgspec.structs.replace(judgment, reward=0.0))
    if not 0.0 <= judgment.reward <= 1.0:
        return undecided(f"{name} gave the reward {judgment.reward}, which is not in [0, 1]")
    return verdict
