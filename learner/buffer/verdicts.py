"""Verdicts of the episodes that may still be trained on, by judge; and what holds when another judge is chosen to train by.

Invariant 5, verdicts are facts about a judge: the buffer counts the first one of the first judge of `judge.judges`, and
remembers those of the others. A fork, or a changed recipe, that names another judge first goes by what that judge has
said, also of episodes that ended before; those it has not spoken about wait for it.
"""

from hindcast.core.domain.evidence import Outcome
from hindcast.events.catalogue import EpisodeJudged
from hindcast.learner.buffer.records import Episode, Verdict
from hindcast.learner.buffer.state import BufferState


def take_verdict(episode: Episode, fact: EpisodeJudged, *, position: int, training: str) -> bool:
    """Remember what a judge said first; True when it now decides what the episode is worth."""
    verdict = Verdict(fact.judgment.outcome, fact.judgment.reward, position)
    if fact.judge.name != training:
        episode.verdicts.setdefault(fact.judge.name, verdict)
        return False
    if episode.outcome is not None:
        return False
    _go_by(episode, verdict)
    return True


def change_judge(state: BufferState, *, before: str, now: str) -> list[Episode]:
    """Go by another judge's verdicts; returns the episodes that it has spoken about, in the order of their requests.

    Nothing happens where the judge stays. What the old one could not decide stays undecided: its steps were let go of.
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
