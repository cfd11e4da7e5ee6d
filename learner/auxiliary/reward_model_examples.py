"""Training set of the outcome reward model: what it read of an episode, and the truth judge's verdict.

Part of the buffer's fold. An episode waits from its request until both are known. The recorded prompt is the bytes that are
trained on (invariant 4). Held-out tasks and evaluation episodes are never used.
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
    """Examples of the reward model, waiting and labelled."""

    awaited: dict[str, Episode] = field(default_factory=dict)
    """Requested episodes whose prompt or label is still missing, by id."""
    successes: list[Episode] = field(default_factory=list)
    """Successes, one sample each, oldest first: the latest `learner.orm_memory`, and those since the learner's last event."""
    failures: list[Episode] = field(default_factory=list)
    """Failures, kept likewise."""
    fresh: int = 0
    """Examples labelled since the last batch was planned."""

    def known(self) -> dict[str, Episode]:
        """Examples that a plan may name, by episode id."""
        return {episode.id: episode for episode in (*self.successes, *self.failures)}


def forget_awaited(outcomes: RewardModelExamples, episode: str) -> None:
    """Forget an episode that was abandoned or cancelled: it will not be judged."""
    outcomes.awaited.pop(episode, None)


def await_outcome(
    outcomes: RewardModelExamples, fact: EpisodeRequested, settings: LearnerSettings, *, at: int
) -> None:
    """Start to wait for the example of an episode that was requested at position `at`."""
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
    """Take in a verdict: the reward model's gives the prompt, the truth judge's the label. Only the first of each counts."""
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
    """Drop the oldest examples beyond the memory, or all of them if no reward model is trained.

    Called only at an event of the learner's own, so that a plan under way finds every example that it names.
    """
    kept = settings.orm_memory if settings.orm_every else 0
    for episodes in (outcomes.successes, outcomes.failures):
        del episodes[: max(0, len(episodes) - kept)]
    if not kept:
        outcomes.awaited.clear()
