"""An episode as judges get it: task and evidence at hand, its transcript read from the log when a judge asks for it.

The start of an episode has its own subject, so one lookup finds it. The steps lie between start and end, so the cost of
reading does not depend on the length of the log.
"""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from hindcast.core.domain.evidence import Evidence
from hindcast.core.domain.observation import Page
from hindcast.core.domain.task import Task
from hindcast.core.errors import BlobMissing, HindcastError
from hindcast.core.structs import decode_msgpack
from hindcast.events.catalogue import EpisodeEnded, EpisodeStarted, StepTaken
from hindcast.events.codec import decode
from hindcast.events.envelope import BlobRef
from hindcast.events.log.port import EventLog
from hindcast.events.subjects import family_of, subject_of
from hindcast.storage.blobs.store import BlobStore

FAMILY = "step"
READ_EVENTS = 256
"""Events read from the log per request."""


class CannotDecide(HindcastError):
    """A judge cannot decide about an episode: its verdict is undecided, with this message as reason."""


class EpisodeTranscript(msgspec.Struct, frozen=True, kw_only=True):
    """What an episode's agent read and answered."""

    instruction: str
    """The agent's instruction; from the page where the task leaves it open."""
    answers: tuple[str, ...]
    """Answers of all steps, oldest first."""
    ended_itself: bool = True
    """Whether the last answer or the page ended it; else the step limit or an early stop did."""
    page: Page | None
    """The final page; None: it was deleted, or never stored."""

    def final_page(self) -> Page:
        """The final page. Raises CannotDecide where it is not kept."""
        if self.page is None:
            raise CannotDecide("the page that the episode ended on is not kept any more")
        return self.page


class JudgedEpisode:
    """An ended episode as judges get it."""

    def __init__(
        self,
        task: Task | None,
        evidence: Evidence,
        read: Callable[[], Awaitable[EpisodeTranscript | None]],
    ) -> None:
        """`task` None: the log does not hold it. `read`: reads the transcript; None: the log does not hold the start."""
        self._task = task
        self._evidence = evidence
        self._read = read

    @classmethod
    def in_log(
        cls, log: EventLog, blobs: BlobStore, task: Task | None, ended: EpisodeEnded, *, before: int
    ) -> "JudgedEpisode":
        """An episode that ended at position `before`; `blobs` holds its pages."""
        return cls(task, ended.evidence, lambda: read_transcript(log, blobs, ended, before=before))

    @property
    def task(self) -> Task:
        """What the agent was to do. Raises CannotDecide where the log does not hold it."""
        if self._task is None:
            raise CannotDecide("the task of this episode does not stand in the log before its end")
        return self._task

    @property
    def evidence(self) -> Evidence:
        """What the episode left for rules to decide by. Raises CannotDecide where it left nothing."""
        evidence = self._evidence
        if not evidence.probes and evidence.answer is None and not evidence.final_url:
            raise CannotDecide("the episode left no evidence")
        return evidence

    async def transcript(self) -> EpisodeTranscript:
        """Read what the agent read and answered.

        Raises:
            CannotDecide: the log does not hold the start of the episode.
            BlobCorrupt: the final page does not match its digest.
            BrokerUnreachable: the log cannot be read.
        """
        transcript = await self._read()
        if transcript is None:
            raise CannotDecide("the start of this episode does not stand in the log before its end")
        return transcript


async def read_transcript(
    log: EventLog, blobs: BlobStore, ended: EpisodeEnded, *, before: int
) -> EpisodeTranscript | None:
    """Read the transcript of an episode that ended at position `before`; None: the log does not hold its start.

    Raises:
        BlobCorrupt: the page does not match its digest.
        BrokerUnreachable: the log cannot be read.
    """
    start_event = await log.last_under(subject_of(log.run, EpisodeStarted, key=ended.episode))
    start = None if start_event is None else decode(start_event)
    if start is None or not isinstance(start.fact, EpisodeStarted):
        return None
    return EpisodeTranscript(
        instruction=start.fact.instruction,
        answers=await _answers(log, ended.episode, after=start.position, before=before),
        ended_itself=ended.reason in ("exit", "done"),
        page=await asyncio.to_thread(read_page, blobs, ended.final_observation),
    )


async def _answers(log: EventLog, episode: str, *, after: int, before: int) -> tuple[str, ...]:
    answers: list[str] = []
    position = after
    while position < before - 1:
        batch = await log.read(after=position, limit=min(READ_EVENTS, before - 1 - position))
        if not batch:
            break
        for stored in batch:
            recorded = decode(stored, strict=False) if family_of(stored.subject) == FAMILY else None
            if (
                recorded is not None
                and isinstance(recorded.fact, StepTaken)
                and recorded.fact.episode == episode
            ):
                answers.append(recorded.fact.answer)
        position = batch[-1].position
    return tuple(answers)


def read_page(blobs: BlobStore, page: BlobRef | None) -> Page | None:
    """Load a stored page; None: there is none, or it was deleted. Raises BlobCorrupt."""
    if page is None:
        return None
    try:
        return decode_msgpack(blobs.get(page), Page)
    except BlobMissing:
        return None
