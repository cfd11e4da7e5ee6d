"""Judges stored evidence again, with another judge or a newer version of the same one.

Invariant "Verdicts are facts about a judge": a second opinion is a separate event. It is appended only on request,
created if absent on its own subject. Earlier verdicts stay.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import aclosing

import msgspec

from hindcast.actors.judges.base import Judge, Verdict, reach_verdict
from hindcast.actors.judges.judged_episode import JudgedEpisode
from hindcast.actors.queue_worker import append_once, author_key
from hindcast.core.domain.evidence import Judgment
from hindcast.core.rl.statistics import cohen_kappa
from hindcast.events.catalogue import EpisodeEnded, EpisodeJudged
from hindcast.events.catalogue.consulted import Consulted
from hindcast.events.catalogue.verdict import JudgeIdentity, Reading
from hindcast.events.log.episode_assembler import AssembledEpisode
from hindcast.events.log.port import EventLog
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.reader import read
from hindcast.storage.blobs.store import BlobStore

NO_VERDICT = "none"
"""Old outcome of an episode without a verdict of the old judge."""


class SecondOpinion(msgspec.Struct, frozen=True, kw_only=True):
    """An episode with its old and new judgment."""

    episode: str
    family: str
    origin: str
    old: Judgment | None
    """The old judge's first verdict; None: it has none."""
    new: Judgment
    reading: Reading | None = None
    """What the model read to reach `new`; None: the judge is no model of the run's own."""
    consulted: Consulted | None = None
    """What the judge asked of an endpoint."""
    before: Judgment | None
    """Earlier judgment of the same judge, name and version; None: none."""

    @property
    def flipped(self) -> bool:
        """Whether the old judge gave another outcome."""
        return self.old is not None and self.old.outcome != self.new.outcome

    @property
    def contradicts_itself(self) -> bool:
        """Whether the same judge and version gave another outcome or reward before."""
        return self.before is not None and (self.before.outcome, self.before.reward) != (
            self.new.outcome,
            self.new.reward,
        )


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """Agreement of old and new verdicts."""

    counts: dict[str, dict[str, int]]
    """Old outcome -> new outcome -> episodes; the old one may be `none`."""
    decided: int
    """Episodes that both judges decided; rate and kappa are over them."""
    agreed: int
    kappa: float | None
    """Cohen's kappa; None where it is undefined, because both judges always give the same outcome."""


Verdicts = Mapping[str, Sequence[EpisodeJudged]]
"""Verdicts by episode, in the order in which they were given."""


async def read_verdicts(log: EventLog, *, judges: Collection[str]) -> Verdicts:
    """Read the verdicts of the named judges from a log."""
    verdicts: dict[str, list[EpisodeJudged]] = {}
    async with aclosing(read(log, after=0, strict=False)) as recordeds:
        async for recorded in recordeds:
            fact = recorded.fact
            if isinstance(fact, EpisodeJudged) and fact.judge.name in judges:
                verdicts.setdefault(fact.episode, []).append(fact)
    return verdicts


async def second_opinion(
    judge: Judge,
    episode: AssembledEpisode,
    verdicts: Verdicts,
    *,
    log: EventLog,
    blobs: BlobStore,
    against: str,
    timeout_s: float,
) -> SecondOpinion | None:
    """Judge an episode again and compare with the judge named `against`; None: the episode left no evidence."""
    earlier = verdicts.get(episode.name, ())
    if not isinstance(episode.end, EpisodeEnded):
        return None
    judged = JudgedEpisode.in_log(log, blobs, episode.request.task, episode.end, before=episode.position)
    verdict = await reach_verdict(judge, judged, timeout_s=timeout_s)
    return SecondOpinion(
        episode=episode.name,
        family=episode.family,
        origin=episode.request.origin,
        old=next((recorded.judgment for recorded in earlier if recorded.judge.name == against), None),
        new=verdict.judgment,
        reading=verdict.reading,
        consulted=verdict.consulted,
        before=next((recorded.judgment for recorded in earlier if _is(recorded.judge, judge.identity)), None),
    )


def _is(first: JudgeIdentity, second: JudgeIdentity) -> bool:
    return (first.name, first.version) == (second.name, second.version)


async def save(
    publisher: Publisher, judge: JudgeIdentity, episode: AssembledEpisode, opinion: SecondOpinion
) -> bool:
    """Append a verdict; False when this judge and version has judged the episode before."""
    verdict = Verdict(judgment=opinion.new, reading=opinion.reading, consulted=opinion.consulted)
    fact = verdict.as_fact(judge, episode=episode.name, task_id=episode.request.task.id)
    return await append_once(
        publisher,
        fact,
        entity=author_key(episode.name, judge),
        causation=episode.end_id,
        episode=episode.name,
    )


def agreement_of(opinions: Sequence[SecondOpinion]) -> Agreement:
    """Count the pairs of outcomes and measure the agreement."""
    pairs: Counter[tuple[str, str]] = Counter(
        (opinion.old.outcome if opinion.old else NO_VERDICT, opinion.new.outcome) for opinion in opinions
    )
    decided = {pair: count for pair, count in pairs.items() if not {NO_VERDICT, "undecided"} & set(pair)}
    counts: dict[str, dict[str, int]] = {}
    for (old, new), count in sorted(pairs.items()):
        counts.setdefault(old, {})[new] = count
    return Agreement(
        counts=counts,
        decided=sum(decided.values()),
        agreed=sum(count for (old, new), count in decided.items() if old == new),
        kappa=cohen_kappa(decided),
    )
