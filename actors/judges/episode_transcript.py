"""The transcript of an episode for judges that read: the instruction, every answer, the final page. From the log alone.

The start of an episode has its own subject, so one lookup finds it. The steps lie between start and end, so the cost of
reading does not depend on the length of the log.
"""

import asyncio

import msgspec

from hindcast.core.domain.observation import Page
from hindcast.core.errors import BlobMissing
from hindcast.events.catalogue import EpisodeEnded, EpisodeStarted, StepTaken
from hindcast.events.codec import decode
from hindcast.events.envelope import BlobRef
from hindcast.events.log.port import EventLog
from hindcast.events.subjects import family_of, subject_of
from hindcast.storage.blobs.store import BlobStore

FAMILY = "step"
READ_EVENTS = 256
"""Events read from the log per request."""


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


async def read_story(
    log: EventLog, blobs: BlobStore, ended: EpisodeEnded, *, before: int
) -> EpisodeTranscript | None:
    """Read the transcript of an episode that ended at position `before`; None: the log does not hold its start.

    Raises:
        BlobCorrupt: the page does not match its digest.
        BrokerUnreachable: the log cannot be read.
    """
    stored = await log.last_under(subject_of(log.run, EpisodeStarted, key=ended.episode))
    begun = None if stored is None else decode(stored)
    if begun is None or not isinstance(begun.fact, EpisodeStarted):
        return None
    return EpisodeTranscript(
        instruction=begun.fact.instruction,
        answers=await _answers(log, ended.episode, after=begun.position, before=before),
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
        return msgspec.msgpack.decode(blobs.get(page), type=Page)
    except BlobMissing:
        return None
