"""The relabeler `learned`: a model of the run's own that reads an episode backwards, from actions to achieved goals (HSL).

It begins as the base policy. The learner trains it from the lessons in its own events, those of demonstrations included.
A lesson is the right output for an episode: the goal of its task, if the judge calls it a success, or the goals that the
teacher (`relabeler.teacher`) found. Before the first version is published it cannot decide, but its events already hold
lessons, and the first version is trained from them.

A goal that it writes counts only where a site parses it as one of its tasks, which have an evaluator. The rest is
dropped and counted. Only the store parses goals.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from threading import Event, Lock
from typing import Any

from hindcast.actors.environments.store.evaluators import ending_of
from hindcast.actors.environments.store.goals.instruction_parser import goal_said
from hindcast.actors.environments.store.goals.visits import StartPage
from hindcast.actors.environments.store.hindsight import goal_key
from hindcast.actors.environments.store.tasks import ENVIRONMENT
from hindcast.actors.judges.judged_episode import read_page
from hindcast.actors.published_versions import PublishedVersions
from hindcast.actors.relabelers.base import AchievedGoal, Relabeler, RelabelResult
from hindcast.core.domain.arrays import pack_ids
from hindcast.core.domain.observation import Page
from hindcast.core.errors import RelabelerFailed, SettingsError
from hindcast.core.models.auxiliary import TextGenerator
from hindcast.core.models.tokenizer import load_tokenizer
from hindcast.core.prompts.achievement_prompt import (
    PROMPT_DIGEST,
    Achievement,
    build_achievement_prompt,
    read_achievements,
    write_achievements,
)
from hindcast.core.prompts.prompt import Prompt, encode_answer
from hindcast.core.rl.combined_state import RELABELER
from hindcast.core.settings.schema import RelabelerSettings, Settings
from hindcast.events.catalogue import WeightsPublished
from hindcast.events.catalogue.curriculum import DEMONSTRATION
from hindcast.events.catalogue.verdict import BackwardReading, JudgeIdentity
from hindcast.events.log.episode_assembler import AssembledEpisode
from hindcast.storage.blobs.store import BlobStore

LEARNED = "learned"
FORMAT_VERSION = "2"
ONLY_LEARNED_FROM = "a demonstration is learned from, and not relabelled"
NO_VERSION = "no version of the model is published yet, or none is kept"
NO_PAGE = "the page that the episode ended on is not kept"


class LearnedRelabeler:
    """One version of the model, or none yet. Reads one episode at a time."""

    def __init__(
        self,
        tokenizer: Any,
        model: TextGenerator | None,
        *,
        version: int | None,
        settings: RelabelerSettings,
        pages: BlobStore,
        teacher: Relabeler | None,
        reading: Lock,
    ) -> None:
        """`reading`: lock around the tokenizer and the model, which threads cannot share."""
        self.identity = JudgeIdentity(
            name=LEARNED, version=f"{FORMAT_VERSION}-v{version or 0}", prompt_digest=PROMPT_DIGEST
        )
        self._tokenizer = tokenizer
        self._model = model
        self.version = version
        """Published version of the model; None: none was published."""
        self._settings = settings
        self._pages = pages
        self._teacher = teacher
        self._reading = reading

    async def goals(self, episode: AssembledEpisode, pages: Sequence[Page]) -> RelabelResult:
        """Find goals, see `Relabeler.goals`. Raises RelabelerFailed where the answers leave no room for the page."""
        final = await asyncio.to_thread(read_page, self._pages, episode.ended.final_observation)
        if final is None:
            return RelabelResult((), failure=NO_PAGE)
        lesson, needs_success = await self._lesson(episode, pages)
        given_up = Event()
        try:
            return await asyncio.to_thread(self._relabel, episode, final, lesson, needs_success, given_up)
        except asyncio.CancelledError:
            # timeout: the thread cannot be stopped, and ends at its next token
            given_up.set()
            raise

    async def _lesson(
        self, episode: AssembledEpisode, pages: Sequence[Page]
    ) -> tuple[list[Achievement], bool]:
        """The lesson of an episode, and whether it holds only if the episode succeeded."""
        if self._teacher is not None:
            try:
                result = await self._teacher.goals(episode, pages)
            except RelabelerFailed:
                result = RelabelResult((), failure="the teacher cannot tell")
            if not result.failure:
                return [_as_written(goal) for goal in result.goals], False
        last = len(episode.steps)
        relevant = [n for n, step in enumerate(episode.steps, 1) if step.fact.result == "ok" or n == last]
        return [Achievement(episode.started.instruction, last, tuple(relevant))], True

    def _relabel(
        self,
        episode: AssembledEpisode,
        final: Page,
        lesson: Sequence[Achievement],
        needs_success: bool,
        given_up: Event,
    ) -> RelabelResult:
        failure = ONLY_LEARNED_FROM if episode.request.origin == DEMONSTRATION else ""
        if self._model is None and not failure:
            failure = NO_VERSION
        with self._reading:
            prompt = self._prompt(episode, final)
            written: list[int] = []
            if self._model is not None and not failure:
                max_tokens = self._settings.answer_tokens
                written = self._model.write(prompt.ids, max_tokens=max_tokens, given_up=given_up.is_set)
            text = self._tokenizer.decode(written, skip_special_tokens=True)
            lesson_ids = self._encoded(lesson)
        read = read_achievements(text, steps=len(episode.steps))
        goals = goals_of(episode, read.achievements)
        return RelabelResult(
            tuple(goals),
            failure=failure,
            reading=BackwardReading(
                prompt_ids=pack_ids(prompt.ids),
                truncated=prompt.truncated,
                model_version=None if failure else self.version,
                written_ids=pack_ids(written),
                dropped=read.unreadable + len(read.achievements) - len(goals),
                lesson_ids=pack_ids(lesson_ids),
                needs_success=needs_success,
            ),
        )

    def _prompt(self, episode: AssembledEpisode, final: Page) -> Prompt:
        """Build the prompt of an episode."""
        max_tokens = self._settings.prompt_tokens
        answers = [step.fact.answer for step in episode.steps]
        try:
            return build_achievement_prompt(
                self._tokenizer, answers=answers, page=final, max_tokens=max_tokens
            )
        except SettingsError as error:  # concerns this episode alone: it must not stop the run
            raise RelabelerFailed(
                f"its last answers leave no room for the page that it ended on: relabeler.prompt_tokens = {max_tokens}"
            ) from error

    def _encoded(self, lesson: Sequence[Achievement]) -> list[int]:
        """Encode as many of the goals as fit `answer_tokens`, first ones first; empty: they do not fit, nothing to learn."""
        for count in range(len(lesson), 0, -1):
            ids = encode_answer(self._tokenizer, write_achievements(lesson[:count]))
            if len(ids) <= self._settings.answer_tokens:
                return ids
        return [] if lesson else encode_answer(self._tokenizer, write_achievements(()))


def goals_of(episode: AssembledEpisode, achievements: Sequence[Achievement]) -> list[AchievedGoal]:
    """Return the achievements that the episode's site parses as goals of its tasks, each once."""
    ending = ending_of(episode.ended.evidence) if episode.task.environment == ENVIRONMENT else ""
    if isinstance(ending, str):
        return []
    start = StartPage(ending.catalogue, ending.opening)
    goals: dict[tuple[str, bytes], AchievedGoal] = {}
    for achievement in achievements:
        parsed = goal_said(achievement.instruction, start)
        if parsed is not None:
            goal = {**parsed.goal, "catalogue": ending.catalogue.name}
            achieved = AchievedGoal(
                achievement.instruction,
                achievement.until_step,
                achievement.relevance,
                f"{ENVIRONMENT}/{parsed.family}",
                goal,
            )
            goals.setdefault((parsed.family, goal_key(parsed.family, goal)), achieved)
    return list(goals.values())


def _as_written(goal: AchievedGoal) -> Achievement:
    """A goal as the lesson writes it; its last step is relevant whatever its label is."""
    relevant = {number for number, label in enumerate(goal.relevance, 1) if label > 0}
    return Achievement(goal.instruction, goal.until_step, tuple(sorted(relevant | {goal.until_step})))


class LearnedVersions(PublishedVersions[LearnedRelabeler]):
    """The published versions of the model, each as a relabeler.

    Raises ModelFileError when the policy's folder cannot be loaded. Its methods raise ModelFileError or BlobCorrupt when a
    version cannot be loaded.
    """

    def __init__(
        self,
        folder: Path,
        *,
        blobs: BlobStore,
        pages: BlobStore,
        settings: Settings,
        teacher: Relabeler | None,
    ) -> None:
        """`folder`: of the policy; the model shares its tokenizer and architecture. `blobs`: its weights. `pages`: pages of
        episodes.
        """
        super().__init__(RELABELER, self._relabeler)
        self._folder = folder
        self._tokenizer = load_tokenizer(folder)
        self._blobs = blobs
        self._pages = pages
        self._settings = settings
        self._teacher = teacher
        self._reading = Lock()

    def _relabeler(self, published: WeightsPublished | None) -> LearnedRelabeler:
        """The relabeler of this version; None: before the first."""
        model = None
        if published is not None:
            weights = self._blobs.path(published.weights)
            model = TextGenerator(
                self._folder,
                weights,
                threads=self._settings.policy.threads,
                device=self._settings.policy.model_device,
            )
        return LearnedRelabeler(
            self._tokenizer,
            model,
            version=None if published is None else published.version,
            settings=self._settings.relabeler,
            pages=self._pages,
            teacher=self._teacher,
            reading=self._reading,
        )
