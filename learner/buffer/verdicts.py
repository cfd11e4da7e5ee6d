"""Verdicts of the episodes that may still be trained on, by judge, and the change to another training judge.

Invariant 5, verdicts are facts about a judge. The first judge of `judge.judges` trains: the buffer counts its first verdict
and remembers those of the others. A fork or a changed recipe may name another judge first. Then that judge's verdicts count,
also for episodes that ended before; episodes without one wait for it.
"""

from hindcast.core.domain.evidence import Outcome
from hindcast.events.catalogue import EpisodeJudged
from hindcast.learner.buffer.records import Episode, Verdict
from hindcast.learner.buffer.state import BufferState


def take_verdict(episode: Episode, fact: EpisodeJudged, *, position: int, training: str) -> bool:
    """Remember a judge's first verdict; True if it now decides the episode's reward."""
    verdict = Verdict(fact.judgment.outcome, fact.judgment.reward, position)
    if fact.judge.name != training:
        episode.verdicts.setdefault(fact.judge.name, verdict)
        return False
    if episode.outcome is not None:
        return False
    _go_by(episode, verdict)
    return True


def change_judge(state: BufferState, *, before: str, now: str) -> list[Episode]:
    """Switch to another judge's verdicts; returns the episodes that it has judged, in the order of their requests.

    Does nothing if the judge stays. Episodes that the old judge left undecided stay so: their steps were dropped.
    """
    spoken: list[Episode] = []
    if now == before:
        return spoken
    for episode in state.episodes.values():
        if episode.outcome == "undecided":
            continue
        theirs = episode.verdicts.pop(now, None)
        if episode.outcome is not None:
            episode.verdicts[before] = Verdict(episode.outcome, episode.reward, episode.judged)
        _go_by(episode, theirs or Verdict(None, 0.0, 0))
        if theirs is not None:
            spoken.append(episode)
        group = state.groups.get(episode.group)
        if group is not None:
            group.complete = False
            state.complete.pop(group.id, None)
    return spoken


def _go_by(episode: Episode, verdict: Verdict) -> None:
    outcome: Outcome | None = verdict.outcome
    episode.outcome, episode.reward, episode.judged = outcome, verdict.reward, verdict.position
