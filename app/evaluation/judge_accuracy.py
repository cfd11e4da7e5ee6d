"""`hindcast judge accuracy`, `hindcast orm accuracy`: compares a judge's verdicts with the truth in the log."""

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import NamedTuple

import msgspec

from hindcast.actors.judges.base import Judge, Verdict, reach_verdict, undecided
from hindcast.actors.judges.judged_episode import JudgedEpisode
from hindcast.actors.judges.second_opinion import read_verdicts
from hindcast.actors.replay.recorded import EpisodeSelection, map_concurrently, recorded_episodes
from hindcast.app.runs.sources import Source
from hindcast.core.rl.held_out import is_held_out
from hindcast.core.rl.statistics import (
    Confusion,
    Interval,
    balanced_accuracy,
    majority_baseline,
    of_failures,
    of_successes,
    plain_accuracy,
)
from hindcast.events.catalogue import EpisodeEnded
from hindcast.events.log.episode_assembler import AssembledEpisode
from hindcast.events.log.port import EventLog
from hindcast.storage.blobs.store import BlobStore

AT_ONCE = 4
"""Episodes judged at the same time, as in a run."""


class AccuracyReport(msgspec.Struct, frozen=True, kw_only=True):
    """Accuracy of a judge."""

    run: str
    """The judge's run."""
    on: str
    """Run of the episodes."""
    judge: str
    """Name and version."""
    truth: str
    held_out: float | None
    """Share of tasks held out from the judge's training; only their episodes count. None: it was not trained."""
    tasks: int
    episodes: int
    """Episodes in the table."""
    undecided: int
    """Episodes that the judge could not decide; not in the table."""
    undecided_because: dict[str, int]
    """Counts by short reason, such as `outage`."""
    table: Confusion
    balanced: Interval | None
    """None: successes or failures are missing."""
    successes_found: Interval | None
    """Share of successes recognized. None: there are none."""
    failures_found: Interval | None
    """Share of failures recognized. None: there are none."""
    accuracy: Interval | None
    """None: no episode was judged by both."""
    majority: float | None
    """Plain accuracy of always giving the more frequent outcome; its balanced accuracy is .5. None: as `accuracy`."""
    by_family: dict[str, Confusion]
    prompt_tokens: int
    """Prompt tokens at an endpoint, those of stored answers included."""
    answer_tokens: int
    cost_usd: float
    """Cost of this measurement's new questions."""


class _Case(NamedTuple):
    episode: AssembledEpisode
    verdict: Verdict


async def measure_accuracy(
    judge: Judge,
    on: Source,
    wanted: EpisodeSelection,
    *,
    truth: str,
    run: str,
    held_out: float | None,
    timeout_s: float,
    at_once: int = AT_ONCE,
    said: Callable[[], None] = lambda: None,
) -> AccuracyReport:
    """Compare a judge's verdicts on the episodes of `on` with those of the judge `truth` in their log; appends nothing.

    `run`: the judge's run; `held_out`: share of tasks held out from its training, to which the measurement is then limited.
    """
    async with on.connect_log() as log:
        verdicts = await read_verdicts(log, judges={truth})
        truths = {name: told[0].judgment.outcome for name, told in verdicts.items()}

        async def work(episode: AssembledEpisode) -> _Case:
            verdict = await _verdict(judge, log, on.blobs, episode, timeout_s=timeout_s)
            said()
            return _Case(episode, verdict)

        cases = await map_concurrently(_asked(log, wanted, truths, share=held_out), work, at_once=at_once)
    tables: dict[str, Confusion] = {}
    whole = Confusion()
    for case in cases:
        outcome = case.verdict.judgment.outcome
        if outcome == "undecided":
            continue
        success, called = truths[case.episode.name] == "success", outcome == "success"
        whole = whole.with_one(success=success, verdict=called)
        own = tables.get(case.episode.family, Confusion())
        tables[case.episode.family] = own.with_one(success=success, verdict=called)
    asked = [case.verdict.consulted for case in cases if case.verdict.consulted is not None]
    return AccuracyReport(
        run=run,
        on=on.name,
        judge=f"{judge.identity.name} {judge.identity.version}",
        truth=truth,
        held_out=held_out,
        tasks=len({case.episode.request.task.id for case in cases}),
        episodes=whole.total,
        undecided=len(cases) - whole.total,
        undecided_because=dict(Counter(_why(case.verdict) for case in cases if _why(case.verdict))),
        table=whole,
        balanced=balanced_accuracy(whole),
        successes_found=of_successes(whole),
        failures_found=of_failures(whole),
        accuracy=plain_accuracy(whole),
        majority=majority_baseline(whole),
        by_family=dict(sorted(tables.items())),
        prompt_tokens=sum(one.prompt_tokens for one in asked),
        answer_tokens=sum(one.answer_tokens for one in asked),
        cost_usd=sum(one.cost_usd for one in asked),
    )


def _why(verdict: Verdict) -> str:
    """Short reason why a verdict is undecided; empty if it is decided."""
    judgment = verdict.judgment
    return judgment.reason.partition(":")[0] if judgment.outcome == "undecided" else ""


async def _asked(
    log: EventLog, wanted: EpisodeSelection, truths: Mapping[str, str], *, share: float | None
) -> AsyncGenerator[AssembledEpisode, None]:
    """Episodes with a known truth; only of held-out tasks if a share is held out."""
    async with aclosing(recorded_episodes(log, wanted, steps=False)) as episodes:
        async for episode in episodes:
            known = truths.get(episode.name, "undecided") != "undecided"
            if known and (share is None or is_held_out(episode.request.task.id, share=share)):
                yield episode


async def _verdict(
    judge: Judge, log: EventLog, blobs: BlobStore, episode: AssembledEpisode, *, timeout_s: float
) -> Verdict:
    """The judge's verdict; `blobs` are those of the episode's run, which hold its page."""
    end = episode.end
    if not isinstance(end, EpisodeEnded):
        return undecided("it did not end")
    judged = JudgedEpisode.in_log(log, blobs, episode.request.task, end, before=episode.position)
    return await reach_verdict(judge, judged, timeout_s=timeout_s)
