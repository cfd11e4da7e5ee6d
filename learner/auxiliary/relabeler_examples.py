"""What the learned relabeler learns from: what it read of an episode, beside what should have been written of it.

Part of the buffer's fold. An episode is followed from its request until relabeler and training judge have spoken; what was
read, and what is trained on, is the same bytes (invariant 4). Tasks that are held out are never learned from; evaluation
episodes neither.
"""

from dataclasses import dataclass, field

from hindcast.core.rl.held_out import is_held_out
from hindcast.core.settings.schema import LearnerSettings
from hindcast.events.catalogue import EpisodeJudged, EpisodeRelabeled, EpisodeRequested
from hindcast.events.envelope import Recorded
from hindcast.learner.buffer.records import Episode, Sample


@dataclass(slots=True)
class AwaitedExample:
    """An episode that not both have spoken about."""

    episode: Episode
    needs_success: bool = False
    """Whether its lesson holds only of a success."""


@dataclass(slots=True)
class RelabelerExamples:
    """Episodes with their lessons."""

    awaited: dict[str, AwaitedExample] = field(default_factory=dict)
    """Requested, and not learned from so far."""
    known: list[Episode] = field(default_factory=list)
    """Of one sample each, oldest first; the latest `learner.relabeler_memory`, and those since the learner's last fact."""
    fresh: int = 0
    """Learned from since a batch was planned."""


def await_lesson(
    lessons: RelabelerExamples, fact: EpisodeRequested, settings: LearnerSettings, *, at: int
) -> None:
    """An episode was requested at this position."""
    task = fact.task
    if settings.relabeler_every == 0 or fact.origin == "evaluation":
        return
    if is_held_out(task.id, share=settings.relabeler_held_out):
        return
    lessons.awaited[fact.episode] = AwaitedExample(
        Episode(
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
    )


def forget_lesson(lessons: RelabelerExamples, episode: str) -> None:
    """It ended otherwise: nobody will relabel it."""
    lessons.awaited.pop(episode, None)


def take_lesson(lessons: RelabelerExamples, recorded: Recorded, fact: EpisodeRelabeled) -> None:
    """The relabeler has spoken; what it says second counts for nothing."""
    awaited = lessons.awaited.get(fact.episode)
    if awaited is None or awaited.episode.samples:
        return
    if fact.reading is None or not fact.reading.lesson_ids:
        del lessons.awaited[fact.episode]
        return
    awaited.needs_success = fact.reading.needs_success
    awaited.episode.samples = [
        Sample(
            position=recorded.position,
            digest=recorded.digest[:8],
            episode=fact.episode,
            prompt_ids=fact.reading.prompt_ids,
            action_ids=fact.reading.lesson_ids,
            logprobs=b"",
            versions=b"",
            temperature=1.0,
        )
    ]
    _learn_from(lessons, awaited)


def take_lesson_verdict(
    lessons: RelabelerExamples, recorded: Recorded, fact: EpisodeJudged, *, training: str
) -> None:
    """The training judge has spoken."""
    awaited = lessons.awaited.get(fact.episode)
    if awaited is None or fact.judge.name != training or awaited.episode.outcome is not None:
        return
    if fact.judgment.outcome == "undecided":
        del lessons.awaited[fact.episode]
        return
    awaited.episode.outcome, awaited.episode.reward = fact.judgment.outcome, fact.judgment.reward
    awaited.episode.judged = recorded.position
    _learn_from(lessons, awaited)


def _learn_from(lessons: RelabelerExamples, awaited: AwaitedExample) -> None:
    """Once both have spoken."""
    episode = awaited.episode
    if not episode.samples or episode.outcome is None:
        return
    del lessons.awaited[episode.id]
    if episode.succeeded or not awaited.needs_success:
        lessons.known.append(episode)
        lessons.fresh += 1


def forget_lessons(lessons: RelabelerExamples, settings: LearnerSettings) -> None:
    """Let go of what is too old, or of all where no model is trained any more.

    Only at a fact of the learner's own: what a plan names, which may be on its way, must still be there when it comes.
    """
    kept = settings.relabeler_memory if settings.relabeler_every else 0
    del lessons.known[: max(0, len(lessons.known) - kept)]
    if not kept:
        lessons.awaited.clear()
