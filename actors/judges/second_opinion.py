"""Stored evidence judged again: what another judge, or the same one as it is now, says about what lies in the log.

Invariant "Verdicts are facts about a judge": a second opinion is a fact of its own. It is appended only when asked for,
created if absent on its own subject, and whatever the same judge and version said before stays.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import aclosing

import msgspec

from hindcast.actors.judges.base import AnyJudge, EpisodeModelJudge, judge_in_time, verdict_key
from hindcast.actors.judges.episode_transcript import EpisodeTranscript
from hindcast.actors.replay.recorded import RecordedEpisode
from hindcast.core.domain.evidence import Judgment
from hindcast.core.errors import ExpectationFailed
from hindcast.core.rl.statistics import cohen_kappa
from hindcast.events.catalogue import EpisodeEnded, EpisodeJudged
from hindcast.events.catalogue.consulted import Consulted
from hindcast.events.catalogue.verdict import JudgeIdentity, Reading
from hindcast.events.log.port import EventLog
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.reader import read

NO_VERDICT = "none"
"""Stands for the old outcome of an episode that the old judge never spoke about."""


class SecondOpinion(msgspec.Struct, frozen=True, kw_only=True):
    """An episode, what was said about it and what is said now."""

    episode: str
    family: str
    origin: str
    old: Judgment | None
    """The old judge's first verdict; None: it never spoke."""
    new: Judgment
    reading: Reading | None = None
    """What it read before it came to `new`; None: it is no language model of the run's own."""
    consulted: Consulted | None = None
    """What it asked of an endpoint."""
    before: Judgment | None
    """What this very judge, name and version, said before; None: nothing."""

    @property
    def flipped(self) -> bool:
        """Whether the old judge came to another outcome."""
        return self.old is not None and self.old.outcome != self.new.outcome

    @property
    def contradicts_itself(self) -> bool:
        """Whether this very judge came to another outcome or reward before."""
        return self.before is not None and (self.before.outcome, self.before.reward) != (
            self.new.outcome,
            self.new.reward,
        )


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """Old against new."""

    counts: dict[str, dict[str, int]]
    """Old outcome -> new outcome -> episodes; the old one may be `none`."""
    decided: int
    """Episodes that both could decide: rate and kappa are of these."""
    agreed: int
    kappa: float | None
    """Cohen's; None where it is not defined, since both always say the same one thing."""


Verdicts = Mapping[str, Sequence[EpisodeJudged]]
"""By episode, in the order in which they were given."""


async def read_verdicts(log: EventLog, *, judges: Collection[str]) -> Verdicts:
    """What these judges, by name, have said in a log."""
    found: dict[str, list[EpisodeJudged]] = {}
    async with aclosing(read(log, after=0, strict=False)) as recordeds:
        async for recorded in recordeds:
            fact = recorded.fact
            if isinstance(fact, EpisodeJudged) and fact.judge.name in judges:
                found.setdefault(fact.episode, []).append(fact)
    return found


async def second_opinion(
    judge: AnyJudge,
    episode: RecordedEpisode,
    verdicts: Verdicts,
    *,
    log: EventLog,
    against: str,
    timeout_s: float,
) -> SecondOpinion | None:
    """The judge's opinion of an episode beside that of the judge named `against`; None: the episode left no evidence."""
    earlier = verdicts.get(episode.name, ())
    if not isinstance(episode.end, EpisodeEnded):
        return None
    story: EpisodeTranscript | None = None
    if isinstance(judge, EpisodeModelJudge):
        story = await judge.story_of(log, episode.end, before=episode.ended)
    opinion = await judge_in_time(
        judge, episode.request.task, episode.end.evidence, story, timeout_s=timeout_s
    )
    new = opinion.judgment
    return SecondOpinion(
        episode=episode.name,
        family=episode.family,
        origin=episode.request.origin,
        old=next((said.judgment for said in earlier if said.judge.name == against), None),
        new=new,
        reading=opinion.reading,
        consulted=opinion.consulted,
        before=next((said.judgment for said in earlier if _is(said.judge, judge.identity)), None),
    )


def _is(one: JudgeIdentity, other: JudgeIdentity) -> bool:
    return (one.name, one.version) == (other.name, other.version)


async def save(
    publisher: Publisher, judge: JudgeIdentity, episode: RecordedEpisode, opinion: SecondOpinion
) -> bool:
    """Append a verdict; False when this judge and version has spoken about the episode before."""
    fact = EpisodeJudged(
        episode=episode.name,
        task_id=episode.request.task.id,
        judge=judge,
        judgment=opinion.new,
        reading=opinion.reading,
        consulted=opinion.consulted,
    )
    try:
        await publisher.decide(
            fact,
            entity=verdict_key(episode.name, judge),
            causation=episode.end_id,
            correlation=episode.name,
        )
    except ExpectationFailed:
        return False
    return True


def agreement_of(opinions: Sequence[SecondOpinion]) -> Agreement:
    """The table of outcomes, and how far the two agree."""
    pairs: Counter[tuple[str, str]] = Counter(
        (said.old.outcome if said.old else NO_VERDICT, said.new.outcome) for said in opinions
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
