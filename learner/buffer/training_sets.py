"""Training sets of the outcome reward model and of the learned relabeler, as part of the buffer's fold.

An example is what the model read of an episode, and what it should have answered: the truth judge's verdict for the reward
model, the achieved goals as text for the relabeler. An episode waits from its request until both are known. The recorded prompt
is the bytes that are trained on (invariant 4). Held-out tasks and evaluation episodes are never used.
Examples beyond the memory are dropped only at an event of the learner's own, so that a plan under way finds every example that
it names.
"""

from dataclasses import dataclass, field, replace

from hindcast.core.rl.combined_state import ORM
from hindcast.core.rl.held_out import is_held_out
from hindcast.core.settings.schema import LearnerSettings
from hindcast.events.catalogue import EpisodeJudged, EpisodeRelabeled, EpisodeRequested
from hindcast.events.envelope import Recorded
from hindcast.learner.buffer.records import Episode, Sample, requested_episode


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

    def expect(self, fact: EpisodeRequested, settings: LearnerSettings, *, position: int) -> None:
        """Start to wait for the example of an episode that was requested at position `position`."""
        if settings.orm_every and not is_held_out(fact.task.id, share=settings.orm_held_out):
            self.awaited[fact.episode] = _awaited(fact, position)

    def forget(self, episode: str) -> None:
        """Forget an episode that was abandoned or cancelled: it will not be judged."""
        self.awaited.pop(episode, None)

    def withhold(self, episode: str) -> None:
        """Leave out an episode, whether its example is complete or not."""
        self.forget(episode)
        self.successes = [example for example in self.successes if example.id != episode]
        self.failures = [example for example in self.failures if example.id != episode]

    def take_verdict(self, recorded: Recorded, fact: EpisodeJudged, settings: LearnerSettings) -> None:
        """Take in a verdict: the reward model's gives the prompt, the truth judge's the label. Only the first of each counts."""
        episode = self.awaited.get(fact.episode)
        if episode is None:
            return
        if fact.judge.name == ORM and not episode.samples:
            if fact.reading is None:
                del self.awaited[fact.episode]
                return
            episode.samples = [_reading(recorded, fact.episode, fact.reading.prompt_ids, b"")]
        elif fact.judge.name == settings.orm_truth and not _decide(episode, recorded, fact):
            del self.awaited[fact.episode]
            return
        if episode.samples and episode.outcome is not None:
            del self.awaited[fact.episode]
            (self.successes if episode.succeeded else self.failures).append(episode)
            self.fresh += 1

    def trim(self, settings: LearnerSettings) -> None:
        """Drop the oldest examples beyond the memory, or all of them if no reward model is trained."""
        memory = settings.orm_memory if settings.orm_every else 0
        for episodes in (self.successes, self.failures):
            del episodes[: max(0, len(episodes) - memory)]
        if not memory:
            self.awaited.clear()


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

    def expect(self, fact: EpisodeRequested, settings: LearnerSettings, *, position: int) -> None:
        """Start to wait for the example of an episode that was requested at position `position`."""
        if settings.relabeler_every and not is_held_out(fact.task.id, share=settings.relabeler_held_out):
            self.awaited[fact.episode] = AwaitedExample(_awaited(fact, position))

    def forget(self, episode: str) -> None:
        """Forget an episode that was abandoned or cancelled: it will not be relabeled."""
        self.awaited.pop(episode, None)

    def withhold(self, episode: str) -> None:
        """Leave out an episode, whether its example is complete or not."""
        self.forget(episode)
        self.known = [example for example in self.known if example.id != episode]

    def take_relabel(self, recorded: Recorded, fact: EpisodeRelabeled) -> None:
        """Take in the relabeler's first report about an episode; later ones are ignored."""
        example = self.awaited.get(fact.episode)
        if example is None or example.episode.samples:
            return
        reading = fact.reading
        if reading is None or not reading.lesson_ids:
            del self.awaited[fact.episode]
            return
        example.needs_success = reading.needs_success
        example.episode.samples = [_reading(recorded, fact.episode, reading.prompt_ids, reading.lesson_ids)]
        self._add(example)

    def take_verdict(self, recorded: Recorded, fact: EpisodeJudged, *, training: str) -> None:
        """Take in the first verdict of the judge named `training`."""
        example = self.awaited.get(fact.episode)
        if example is None or fact.judge.name != training:
            return
        if _decide(example.episode, recorded, fact):
            self._add(example)
        else:
            del self.awaited[fact.episode]

    def _add(self, example: AwaitedExample) -> None:
        """Add the example once both relabel and verdict are known."""
        episode = example.episode
        if not episode.samples or episode.outcome is None:
            return
        del self.awaited[episode.id]
        if episode.succeeded or not example.needs_success:
            self.known.append(episode)
            self.fresh += 1

    def trim(self, settings: LearnerSettings) -> None:
        """Drop the oldest examples beyond the memory, or all of them if no relabeler is trained."""
        memory = settings.relabeler_memory if settings.relabeler_every else 0
        del self.known[: max(0, len(self.known) - memory)]
        if not memory:
            self.awaited.clear()


def _awaited(fact: EpisodeRequested, position: int) -> Episode:
    return replace(requested_episode(fact, position=position), ended=True)


def _reading(recorded: Recorded, episode: str, prompt_ids: bytes, answer_ids: bytes) -> Sample:
    return Sample(
        position=recorded.position,
        digest=recorded.digest[:8],
        episode=episode,
        prompt_ids=prompt_ids,
        action_ids=answer_ids,
        logprobs=b"",
        versions=b"",
        temperature=1.0,
    )


def _decide(episode: Episode, recorded: Recorded, fact: EpisodeJudged) -> bool:
    """Take in a verdict unless there is one; False if the judge could not tell."""
    if episode.outcome is None:
        if fact.judgment.outcome == "undecided":
            return False
        episode.outcome, episode.reward = fact.judgment.outcome, fact.judgment.reward
        episode.judged = recorded.position
    return True
