"""The judge `orm`: an outcome reward model (WebRL, arXiv 2411.02337) that the run itself trains.

It reads instruction, answers and final page (`core.verdict_prompt`) and says success where P(YES) over {YES, NO} is at
least `judge.orm_threshold`. Where nothing was published yet it is undecided, but what it would have read stands in its
verdict all the same: that is what the learner trains the first version from.

Its version is that of the prompt's format and of the model together, so that what another version says about an episode
is another fact. Invariant "Adopted is not published": which version spoke stands in every verdict.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import aclosing
from pathlib import Path
from threading import Lock
from typing import Any

import structlog

from actors.following import follow, look_back
from actors.judge.base import NO_PAGE, Opinion, Reader, undecided
from actors.judge.story import Story, read_story
from core.arrays import pack_ids
from core.errors import BlobMissing
from core.evidence import Judgment
from core.models.orm import OutcomeModel
from core.models.policy import load_policy
from core.observation import Page
from core.settings import Settings
from core.states import ORM
from core.verdict_prompt import PROMPT_DIGEST, build_verdict_prompt
from events.catalogue import EpisodeEnded, WeightsPublished
from events.catalogue.verdict import JudgeIdentity, Reading
from events.envelope import Recorded
from events.log import EventLog
from storage.blobs import BlobStore

FORMAT_VERSION = "1"
FAMILY = "learner"

logger = structlog.get_logger(__name__)


class OrmJudge:
    """One version of the model, or none yet. Episodes are read one after the other, whoever asks."""

    def __init__(
        self,
        tokenizer: Any,
        model: OutcomeModel | None,
        *,
        version: int | None,
        settings: Settings,
        blobs: BlobStore,
        reading: Lock,
    ) -> None:
        """`reading`: held while the tokenizer and the model are in use, which threads cannot share."""
        self.identity = JudgeIdentity(
            name=ORM, version=f"{FORMAT_VERSION}-v{version or 0}", prompt_digest=PROMPT_DIGEST
        )
        self._tokenizer = tokenizer
        self.version = version
        """Published version that speaks; None: none was published."""
        self._model = model
        self._settings = settings.judge
        self._blobs = blobs
        self._reading = reading

    async def story_of(self, log: EventLog, ended: EpisodeEnded, *, before: int) -> Story | None:
        """See `actors.judge.base.Reader`."""
        return await read_story(log, self._blobs, ended, before=before)

    async def read(self, story: Story) -> Opinion:
        """Whether the agent did what it was told.

        Raises:
            SettingsError: instruction and answers leave no room for the page.

        """
        if story.page is None:
            return Opinion(judgment=undecided(NO_PAGE))
        return await asyncio.to_thread(self._read, story, story.page)

    def _read(self, story: Story, page: Page) -> Opinion:
        with self._reading:
            prompt = build_verdict_prompt(
                self._tokenizer,
                instruction=story.instruction,
                answers=story.answers,
                page=page,
                max_tokens=self._settings.orm_prompt_tokens,
            )
            probability = None if self._model is None else self._model.probability(prompt.ids)
        return Opinion(
            judgment=judgment_of(probability, threshold=self._settings.orm_threshold),
            reading=Reading(
                prompt_ids=pack_ids(prompt.ids),
                truncated=prompt.truncated,
                model_version=self.version,
                probability=probability,
            ),
        )


def judgment_of(probability: float | None, *, threshold: float) -> Judgment:
    """What P(YES) means; None: nobody was there to answer."""
    if probability is None:
        return undecided("no outcome reward model is published yet, or none is kept")
    success = probability >= threshold
    return Judgment(
        outcome="success" if success else "failure",
        reward=float(success),
        reason=f"P(YES) is {probability:.3f}, {threshold:g} is needed",
    )


class OrmVersions:
    """The published versions of the model, each as a judge (`actors.judge.shelf.Shelf`).

    Raises ModelFileError when the policy's folder cannot be loaded.
    """

    name = ORM

    def __init__(self, folder: Path, *, blobs: BlobStore, settings: Settings) -> None:
        """`folder`: of the policy, whose tokenizer and architecture the model has."""
        self._folder = folder
        self._tokenizer = load_policy(folder).tokenizer
        self._blobs = blobs
        self._settings = settings
        self._reading = Lock()
        self._position = 0
        """Publications are known up to here."""

    async def begin(self, log: EventLog) -> OrmJudge:
        """The newest version that the log knows now.

        One whose weights were let go of is passed over as if none were published: as in a fork from a place that the
        parent keeps no weights of. What is read then is what the next version learns from.

        Raises:
            ModelFileError, BlobCorrupt: it cannot be loaded.

        """
        self._position = (await log.identity()).last
        published = await find_newest_orm(log, until=self._position)
        try:
            return await asyncio.to_thread(self._judge, published)
        except BlobMissing as error:
            logger.warning("no model speaks before the next version: its weights are gone", reason=str(error))
            return await asyncio.to_thread(self._judge, None)

    async def follow(self, log: EventLog, replace: Callable[[Reader], None]) -> None:
        """Hand over every newer version as it is published, for ever; one that is gone already is passed over.

        Raises as `begin`.
        """
        async with aclosing(follow(log, after=self._position, families={FAMILY})) as batches:
            async for followed in batches:
                published = newest_orm(followed.recorded)
                if published is None:
                    continue
                try:
                    replace(await asyncio.to_thread(self._judge, published))
                except BlobMissing:
                    logger.warning(
                        "a model was let go of: a newer one must follow", version=published.version
                    )

    def _judge(self, published: WeightsPublished | None) -> OrmJudge:
        """The judge of this version; None: before the first."""
        model = None
        if published is not None:
            weights = self._blobs.path(published.weights)
            model = OutcomeModel(self._folder, weights, threads=self._settings.policy.threads)
        return OrmJudge(
            self._tokenizer,
            model,
            version=None if published is None else published.version,
            settings=self._settings,
            blobs=self._blobs,
            reading=self._reading,
        )


def newest_orm(events: Iterable[Recorded]) -> WeightsPublished | None:
    """The last publication of the model among these events, oldest first."""
    newest = None
    for recorded in events:
        if isinstance(recorded.fact, WeightsPublished) and recorded.fact.model == ORM:
            newest = recorded.fact
    return newest


async def find_newest_orm(log: EventLog, *, until: int) -> WeightsPublished | None:
    """The last publication of the model up to position `until`, looked for from there back.

    A run that trains one publishes it again and again, so that the look is short.
    """
    newest, end = None, until
    while newest is None and end > 0:
        stretch, end = await look_back(log, until=end, families={FAMILY})
        newest = newest_orm(stretch)
    return newest
