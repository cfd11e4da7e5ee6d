"""What a judge that reads is shown of an episode: the instruction, every answer, the page it ended on. From the log alone.

An episode's start is found by one look, since it has a subject of its own; its steps stand between its start and its
end, so that reading it does not depend on the length of history.
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
"""Events that are looked through at once."""


class EpisodeTranscript(msgspec.Struct, frozen=True, kw_only=True):
    """An episode as its agent told it."""

    instruction: str
    """What the agent was told; from the page where the task leaves it open."""
    answers: tuple[str, ...]
    """Of all steps, oldest first."""
    ended_itself: bool = True
    """Whether its last answer, or its page, ended it; else its limit or an early stop did."""
    page: Page | None
    """What the agent saw last; None: it was let go of, or never kept."""


async def read_story(
    log: EventLog, blobs: BlobStore, ended: EpisodeEnded, *, before: int
) -> EpisodeTranscript | None:
    """The story of an episode whose end stands at position `before`; None: the log does not hold its start.

    Raises:
        BlobCorrupt: the page is not what its name promises.
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
    """A page that was kept; None: there is none, or it was let go of. Raises BlobCorrupt."""
    if page is None:
        return None
    try:
        return msgspec.msgpack.decode(blobs.get(page), type=Page)
    except BlobMissing:
        return None
