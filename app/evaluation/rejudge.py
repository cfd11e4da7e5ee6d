"""`hindcast rejudge`: runs another judge over the stored evidence of a run."""

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

import msgspec

from hindcast.actors.judges.base import Judge
from hindcast.actors.judges.second_opinion import (
    Agreement,
    SecondOpinion,
    agreement_of,
    read_verdicts,
    save,
    second_opinion,
)
from hindcast.actors.replay.recorded import EpisodeSelection, map_concurrently, recorded_episodes
from hindcast.app.runs.folded_read_model import show_now
from hindcast.app.runs.runs import RunHandle
from hindcast.app.runs.sources import Source
from hindcast.core.errors import SettingsError
from hindcast.events.catalogue import EpisodeJudged
from hindcast.events.log.episode_assembler import AssembledEpisode
from hindcast.events.log.publisher import Publisher

AT_ONCE = 4
"""Episodes judged at the same time, as in a run; with an endpoint's batches, as many as a batch holds."""
PRODUCER = "judge.rejudge"


class RejudgeReport(msgspec.Struct, frozen=True, kw_only=True):
    """Verdicts of a judge, compared with earlier ones."""

    run: str
    judge: str
    """Name and version."""
    against: str
    """Name of the judge whose first verdicts are the old ones."""
    episodes: int
    """Episodes with evidence."""
    without_evidence: int
    """Episodes abandoned, cancelled or running, which cannot be judged."""
    flips: tuple[SecondOpinion, ...]
    """Episodes with another outcome, in the order in which they ended."""
    agreement: Agreement
    by_family: dict[str, Agreement]
    contradictions: tuple[SecondOpinion, ...]
    """Episodes on which the same judge and version gave another verdict before."""
    saved: int
    """New verdicts appended."""
    already: int
    """Episodes that had a verdict of this judge and version already; it stays."""


async def rejudge(
    source: Source,
    wanted: EpisodeSelection,
    *,
    judge: Judge,
    against: str | None = None,
    save_to: RunHandle | None = None,
    timeout_s: float | None = None,
    at_once: int = AT_ONCE,
    said: Callable[[SecondOpinion], None] = lambda _: None,
) -> RejudgeReport:
    """Judge the selected episodes again. `against`: the old judge; None: the one that training uses. `timeout_s`: for one
    verdict; None: the run's. `at_once`: episodes judged at the same time.

    `save_to`: the run to whose log the verdicts are appended, as role `judge`; None: nothing is appended. Undecided opinions
    are not appended, because a verdict stays, and today's outage must not prevent tomorrow's verdict.

    Raises:
        NoSuchEpisode, CorruptEvent, …: see `recorded_episodes`.
        SettingsError: the judge `against` has given no verdict.
        LogFull, BrokerUnreachable: a verdict could not be appended.

    """
    old = against or source.settings.judge.judges[0]
    bound_s = timeout_s or source.settings.judge.timeout_s
    saved: list[bool] = []
    async with AsyncExitStack() as stack:
        log = await stack.enter_async_context(source.connect_log())
        publisher = None
        if save_to is not None:
            writing = await stack.enter_async_context(save_to.connect_log(role="judge"))
            publisher = await stack.enter_async_context(
                Publisher(writing, producer=PRODUCER, code_rev=source.code_rev, settings=save_to.settings.log)
            )

        verdicts = await read_verdicts(log, judges={old, judge.identity.name})
        if against is not None and not any(_of(against, said) for said in verdicts.values()):
            raise SettingsError(
                f"a judge {against!r} has given no verdict in run {source.name}: there is nothing to compare with. To list "
                f"an episode's judges: hindcast episode show EPISODE {source.name}"
            )

        async def work(episode: AssembledEpisode) -> SecondOpinion | None:
            opinion = await second_opinion(
                judge, episode, verdicts, log=log, blobs=source.blobs, against=old, timeout_s=bound_s
            )
            if opinion is not None:
                if publisher is not None and opinion.new.outcome != "undecided":
                    saved.append(await save(publisher, judge.identity, episode, opinion))
                said(opinion)
            return opinion

        found = await map_concurrently(recorded_episodes(log, wanted, steps=False), work, at_once=at_once)
        if save_to is not None and any(saved):
            await show_now(save_to, log)
    opinions = [opinion for opinion in found if opinion is not None]
    families = sorted({opinion.family for opinion in opinions})
    return RejudgeReport(
        run=source.name,
        judge=f"{judge.identity.name} {judge.identity.version}",
        against=old,
        episodes=len(opinions),
        without_evidence=len(found) - len(opinions),
        flips=tuple(opinion for opinion in opinions if opinion.flipped),
        agreement=agreement_of(opinions),
        by_family={
            family: agreement_of([opinion for opinion in opinions if opinion.family == family])
            for family in families
        },
        contradictions=tuple(opinion for opinion in opinions if opinion.contradicts_itself),
        saved=sum(saved),
        already=len(saved) - sum(saved),
    )


def _of(judge: str, said: Sequence[EpisodeJudged]) -> bool:
    return any(verdict.judge.name == judge for verdict in said)
