"""The judge `orm`: an outcome reward model (WebRL, arXiv 2411.02337) that the run itself trains.

It reads instruction, answers and final page (`core.prompts.verdict_prompt`) and says success where P(YES) over {YES, NO} is at
least `judge.orm_threshold`. Before the first version is published it is undecided. Its verdict holds the prompt even
then, and the learner trains the first version from it.

The judge's version combines the prompt's format and the model's version, so that another version's verdict is a
separate event. Invariant "Adopted is not published": every verdict holds the version that judged.
"""

import asyncio
from pathlib import Path
from threading import Lock
from typing import Any

from hindcast.actors.judges.base import Verdict, undecided
from hindcast.actors.judges.judged_episode import EpisodeTranscript, JudgedEpisode
from hindcast.actors.published_versions import PublishedVersions
from hindcast.core.domain.arrays import pack_ids
from hindcast.core.domain.evidence import Judgment
from hindcast.core.models.auxiliary import OutcomeModel
from hindcast.core.models.tokenizer import load_tokenizer
from hindcast.core.prompts.verdict_prompt import PROMPT_DIGEST, build_verdict_prompt
from hindcast.core.rl.combined_state import ORM
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import WeightsPublished
from hindcast.events.catalogue.verdict import JudgeIdentity, Reading
from hindcast.storage.blobs.store import BlobStore

FORMAT_VERSION = "2"


class OrmJudge:
    """One version of the outcome reward model, or none yet. Reads one episode at a time."""

    asks_model = True

    def __init__(
        self,
        tokenizer: Any,
        model: OutcomeModel | None,
        *,
        version: int | None,
        settings: Settings,
        reading: Lock,
    ) -> None:
        """`reading`: lock around the tokenizer and the model, which threads cannot share."""
        self.identity = JudgeIdentity(
            name=ORM, version=f"{FORMAT_VERSION}-v{version or 0}", prompt_digest=PROMPT_DIGEST
        )
        self._tokenizer = tokenizer
        self.version = version
        """Published version of the model; None: none was published."""
        self._model = model
        self._settings = settings.judge
        self._reading = reading

    async def judge(self, episode: JudgedEpisode) -> Verdict:
        """Compute whether the agent reached its goal.

        Raises:
            SettingsError: instruction and answers leave no room for the page.
        """
        return await asyncio.to_thread(self._judge_transcript, await episode.transcript())

    def _judge_transcript(self, story: EpisodeTranscript) -> Verdict:
        page = story.final_page()
        with self._reading:
            prompt = build_verdict_prompt(
                self._tokenizer,
                instruction=story.instruction,
                answers=story.answers,
                page=page,
                max_tokens=self._settings.orm_prompt_tokens,
            )
            probability = None if self._model is None else self._model.probability(prompt.ids)
        return Verdict(
            judgment=judgment_of(probability, threshold=self._settings.orm_threshold),
            reading=Reading(
                prompt_ids=pack_ids(prompt.ids),
                truncated=prompt.truncated,
                model_version=self.version,
                probability=probability,
            ),
        )


def judgment_of(probability: float | None, *, threshold: float) -> Judgment:
    """The judgment for a P(YES); None: no model is published."""
    if probability is None:
        return undecided("no outcome reward model is published yet, or none is kept").judgment
    success = probability >= threshold
    return Judgment(
        outcome="success" if success else "failure",
        reward=float(success),
        reason=f"P(YES) is {probability:.3f}, {threshold:g} is needed",
    )


class OrmVersions(PublishedVersions[OrmJudge]):
    """The published versions of the model, each as a judge (`actors.judges.base.JudgeVersions`).

    Raises ModelFileError when the policy's folder cannot be loaded. Its methods raise ModelFileError or BlobCorrupt when a
    version cannot be loaded.
    """

    name = ORM

    def __init__(self, folder: Path, *, blobs: BlobStore, settings: Settings) -> None:
        """`folder`: of the policy; the model shares its tokenizer and architecture."""
        super().__init__(ORM, self._judge)
        self._folder = folder
        self._tokenizer = load_tokenizer(folder)
        self._blobs = blobs
        self._settings = settings
        self._reading = Lock()

    def _judge(self, published: WeightsPublished | None) -> OrmJudge:
        """The judge of this version; None: before the first."""
        model = None
        if published is not None:
            weights = self._blobs.path(published.weights)
            model = OutcomeModel(
                self._folder,
                weights,
                threads=self._settings.policy.threads,
                device=self._settings.policy.model_device,
            )
        return OrmJudge(
            self._tokenizer,
            model,
            version=None if published is None else published.version,
            settings=self._settings,
            reading=self._reading,
        )
