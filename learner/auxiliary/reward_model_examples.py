"""What the outcome reward model learns from: what it read of an episode, beside what a judge of the truth said about it.

Part of the buffer's fold. An episode is followed from its request until both have spoken; what it read, and what is
trained on, is the same bytes (invariant 4). Tasks that are held out are never learned from; evaluation episodes neither.
"""

from dataclasses import dataclass, field

from hindcast.core.rl.combined_state import ORM
from hindcast.core.rl.held_out import is_held_out
from hindcast.core.settings.schema import LearnerSettings
from hindcast.events.catalogue import EpisodeJudged, EpisodeRequested
from hindcast.events.envelope import Recorded
from hindcast.learner.buffer.records import Episode, Sample


@dataclass(slots=True)
class RewardModelExamples:
    """Labelled episodes."""

    awaited: dict[str, Episode] = field(default_factory=dict)
    """Requested, and not both read and labelled so far."""
    successes: list[Episode] = field(default_factory=list)
    """Of one sample each, oldest first; the latest `learner.orm_memory`, and those since the learner's last fact."""
    failures: list[Episode] = field(default_factory=list)
    fresh: int = 0
    """Labelled since a batch was planned."""

    def known(self) -> dict[str, Episode]:
        """What a plan may name."""
        return {episode.id: episode for episode in (*self.successes, *self.failures)}


def forget_awaited(outcomes: RewardModelExamples, episode: str) -> None:
    """It ended otherwise: nobody will judge it."""
    outcomes.awaited.pop(episode, None)


def await_outcome(
    outcomes: RewardModelExamples, fact: EpisodeRequested, settings: LearnerSettings, *, at: int
) -> None:
    """An episode was requested at this position."""
    if settings.orm_every == 0 or fact.origin == "evaluation":
        return
    task = fact.task
    if is_held_out(task.id, share=settings.orm_held_out):
        return
    outcomes.awaited[fact.episode] = Episode(
        id=fact.episode,
        origin=fact.origin,
        family=f"{task.environment}/{task.family}",
        task=task.id,
        group=fact.group,
        member=fact.member,
        attempt=fact.attempt,
        requested=at,
        ended=True,
    )


def take_outcome(
    outcomes: RewardModelExamples, recorded: Recorded, fact: EpisodeJudged, settings: LearnerSettings
) -> None:
    """A verdict: what the model read, or the truth about it. Each counts once; without one of them nothing is learned."""
    episode = outcomes.awaited.get(fact.episode)
    if episode is None:
        return
    if fact.judge.name == ORM and not episode.samples:
        if fact.reading is None:
            del outcomes.awaited[fact.episode]
            return
        episode.samples = [
            Sample(
                position=recorded.position,
                digest=recorded.digest[:8],
                episode=fact.episode,
                prompt_ids=fact.reading.prompt_ids,
                action_ids=b"",
                logprobs=b"",
                versions=b"",
                temperature=1.0,
            )
        ]
    elif fact.judge.name == settings.orm_truth and episode.outcome is None:
        if fact.judgment.outcome == "undecided":
            del outcomes.awaited[fact.episode]
            return
        episode.outcome, episode.reward = fact.judgment.outcome, fact.judgment.reward
        episode.judged = recorded.position
    if episode.samples and episode.outcome is not None:
        _learn_from(outcomes, outcomes.awaited.pop(fact.episode))


def _learn_from(outcomes: RewardModelExamples, episode: Episode) -> None:
    (outcomes.successes if episode.succeeded else outcomes.failures).append(episode)
    outcomes.fresh += 1


def forget_outcomes(outcomes: RewardModelExamples, settings: LearnerSettings) -> None:
    """Let go of what is too old, or of all where no model is trained any more.

    Only at a fact of the learner's own: what a plan names, which may be on its way, must still be there when it comes.
    """
    kept = settings.orm_memory if settings.orm_every else 0
    for episodes in (outcomes.successes, outcomes.failures):
        del episodes[: max(0, len(episodes) - kept)]
    if not kept:
        outcomes.awaited.clear()
