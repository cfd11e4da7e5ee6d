"""Training set of the learned relabeler: what it read of an episode, and what it should have written.

Part of the buffer's fold. An episode waits from its request until relabeler and training judge have reported. The recorded
prompt is the bytes that are trained on (invariant 4). Held-out tasks and evaluation episodes are never used.
"""

from dataclasses import dataclass, field

from hindcast.core.rl.held_out import is_held_out
from hindcast.core.settings.schema import LearnerSettings
from hindcast.events.catalogue import EpisodeJudged, EpisodeRelabeled, EpisodeRequested
from hindcast.events.envelope import Recorded
from hindcast.learner.buffer.records import Episode, Sample


@dataclass(slots=True)
class AwaitedExample:
    """An episode whose relabel or verdict is still missing."""

    episode: Episode
    needs_success: bool = False
    """Whether the example is valid only if the episode succeeded."""


@dataclass(slots=True)
class RelabelerExamples:
    """Examples of the relabeler, waiting and complete."""

    awaited: dict[str, AwaitedExample] = field(default_factory=dict)
    """Requested episodes that are no example yet, by id."""
    known: list[Episode] = field(default_factory=list)
    """Examples, one sample each, oldest first: the latest `learner.relabeler_memory`, and those since the learner's last event."""
    fresh: int = 0
    """Examples added since the last batch was planned."""


def await_lesson(
    lessons: RelabelerExamples, fact: EpisodeRequested, settings: LearnerSettings, *, at: int
) -> None:
    """Start to wait for the example of an episode that was requested at position `at`."""
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
    """Forget an episode that was abandoned or cancelled: it will not be relabeled."""
    lessons.awaited.pop(episode, None)


def take_lesson(lessons: RelabelerExamples, recorded: Recorded, fact: EpisodeRelabeled) -> None:
    """Take in the relabeler's first report about an episode; later ones are ignored."""
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
    """Take in the training judge's first verdict."""
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
    """Add the example once both relabel and verdict are known."""
    episode = awaited.episode
    if not episode.samples or episode.outcome is None:
        return
    del lessons.awaited[episode.id]
    if episode.succeeded or not awaited.needs_success:
        lessons.known.append(episode)
        lessons.fresh += 1


def forget_lessons(lessons: RelabelerExamples, settings: LearnerSettings) -> None:
    """Drop the oldest examples beyond the memory, or all of them if no relabeler is trained.

    Called only at an event of the learner's own, so that a plan under way finds every example that it names.
    """
    kept = settings.relabeler_memory if settings.relabeler_every else 0
    del lessons.known[: max(0, len(lessons.known) - kept)]
    if not kept:
        lessons.awaited.clear()
