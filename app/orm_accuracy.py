"""`hindcast orm accuracy`: the outcome reward model of a run, held against the truth on tasks that it never learned from."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import NamedTuple

import msgspec

from actors.judge.base import judge_in_time
from actors.judge.orm import OrmJudge
from actors.judge.rejudging import read_verdicts
from actors.judge.story import read_story
from actors.replay.recorded import RecordedEpisode, Wanted, recorded_episodes
from actors.replay.working import each
from app.judges import judge_for
from app.sources import Source
from core.agreement import (
    Confusion,
    balanced_accuracy,
    majority_baseline,
    of_failures,
    of_successes,
    plain_accuracy,
)
from core.errors import SettingsError
from core.held_out import is_held_out
from core.states import ORM
from core.statistics import Interval
from events.catalogue import EpisodeEnded
from events.log import EventLog
from storage.blobs import BlobStore

AT_ONCE = 2
"""Episodes read at the same time: the model answers one after the other, a page is fetched meanwhile."""


class AccuracyReport(msgspec.Struct, frozen=True, kw_only=True):
    """How often the model is right."""

    run: str
    """Whose model it is."""
    on: str
    """Whose episodes they are."""
    judge: str
    """Name and version."""
    truth: str
    held_out: float
    """Share of the tasks that the model never learned from; all episodes counted here are of those."""
    tasks: int
    episodes: int
    """Counted in the table."""
    undecided: int
    """Not counted: the model had nothing to read."""
    table: Confusion
    balanced: Interval | None
    """None: there are no successes among them, or no failures."""
    successes_found: Interval
    failures_found: Interval
    accuracy: Interval
    majority: float
    """Plain accuracy of always giving the commoner answer; its balanced accuracy is .5."""
    by_family: dict[str, Confusion]


class _Case(NamedTuple):
    episode: RecordedEpisode
    said: str
    """Outcome by the model."""


async def measure_accuracy(
    source: Source, on: Source, wanted: Wanted, *, said: Callable[[], None] = lambda: None
) -> AccuracyReport:
    """The newest published version of `source`'s model, on the episodes of `on` that are of held-out tasks.

    The truth is what the judge `learner.orm_truth` of `source` said in the log of `on`.

    Raises:
        SettingsError: no version was published, or every task may have been learned from.

    """
    learner = source.settings.learner
    if not learner.orm_held_out:
        raise SettingsError(
            f"run {source.name} holds no task out (learner.orm_held_out = 0): whatever is measured was learned from"
        )
    judge = await judge_for(ORM, source)
    assert isinstance(judge, OrmJudge)
    if judge.version is None:
        raise SettingsError(
            f"run {source.name} has published no outcome reward model yet, or has let go of its weights. Set learner.orm_every, and judge.judges to name "
            f"{ORM} and {learner.orm_truth}; then: hindcast log --run {source.name}"
        )
    async with on.connect_log() as log:
        verdicts = await read_verdicts(log, judges={learner.orm_truth})
        truths = {name: told[0].judgment.outcome for name, told in verdicts.items()}

        async def work(episode: RecordedEpisode) -> _Case:
            timeout_s = source.settings.judge.timeout_s
            outcome = await _outcome(judge, log, on.blobs, episode, timeout_s=timeout_s)
            said()
            return _Case(episode, outcome)

        asked = _held_out(log, wanted, truths, share=learner.orm_held_out)
        cases = await each(asked, work, at_once=AT_ONCE)
    tables: dict[str, Confusion] = {}
    whole = Confusion()
    for case in cases:
        if case.said == "undecided":
            continue
        success, called = truths[case.episode.name] == "success", case.said == "success"
        whole = whole.with_one(success=success, said=called)
        own = tables.get(case.episode.family, Confusion())
        tables[case.episode.family] = own.with_one(success=success, said=called)
    return AccuracyReport(
        run=source.name,
        on=on.name,
        judge=f"{judge.identity.name} {judge.identity.version}",
        truth=learner.orm_truth,
        held_out=learner.orm_held_out,
        tasks=len({case.episode.request.task.id for case in cases}),
        episodes=whole.total,
        undecided=len(cases) - whole.total,
        table=whole,
        balanced=balanced_accuracy(whole),
        successes_found=of_successes(whole),
        failures_found=of_failures(whole),
        accuracy=plain_accuracy(whole),
        majority=majority_baseline(whole),
        by_family=dict(sorted(tables.items())),
    )


async def _held_out(
    log: EventLog, wanted: Wanted, truths: Mapping[str, str], *, share: float
) -> AsyncGenerator[RecordedEpisode, None]:
    """Episodes of held-out tasks that the truth is known of."""
    async with aclosing(recorded_episodes(log, wanted, steps=False)) as episodes:
        async for episode in episodes:
            known = truths.get(episode.name, "undecided") != "undecided"
            if known and is_held_out(episode.request.task.id, share=share):
                yield episode


async def _outcome(
    judge: OrmJudge, log: EventLog, blobs: BlobStore, episode: RecordedEpisode, *, timeout_s: float
) -> str:
    """What the model says; `blobs` are those of the run whose episode it is, which has the page."""
    end = episode.end
    if not isinstance(end, EpisodeEnded):
        return "undecided"
    story = await read_story(log, blobs, end, before=episode.ended)
    opinion = await judge_in_time(judge, episode.request.task, end.evidence, story, timeout_s=timeout_s)
    return opinion.judgment.outcome
