"""One step in full, from the log and the blobs: what the policy read, token by token, and the page; and an episode's last page."""

import asyncio
import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

import msgspec
from sqlalchemy import Connection, select
from tokenizers import Tokenizer

from hindcast.app.page.drawn_page import PageDrawing, draw_page
from hindcast.app.runs.runs import RunHandle
from hindcast.app.runs.sources import Source
from hindcast.core.domain.arrays import unpack_floats, unpack_ids
from hindcast.core.domain.observation import Page
from hindcast.core.errors import HindcastError
from hindcast.core.models.folders import policy_folder
from hindcast.core.prompts.rendering.lines import render_lines
from hindcast.core.structs import decode_msgpack
from hindcast.events.catalogue import EpisodeEnded, StepTaken
from hindcast.events.codec import decode
from hindcast.events.envelope import BlobRef
from hindcast.events.subjects import subject_of
from hindcast.storage.readmodel.query_parts import NotInReadModel
from hindcast.storage.readmodel.tables import screenshots

FURTHEST = 2**63 - 1
"""Largest position of a log."""


class ModelFolderMissing(HindcastError):
    """The run's model folder is on another machine."""


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """One token that was sampled, or written by a demonstrator."""

    text: str
    logprob: float
    """Under the distribution sampled from; 0 of a demonstrator."""
    version: int
    """Policy version it was sampled from; -1: a demonstrator's."""


class StepDetail(msgspec.Struct, frozen=True, kw_only=True):
    """One step in full."""

    position: int
    episode: str
    index: int
    url: str
    page: str
    """The page as lines of text; empty if it is missing, see `page_missing`."""
    page_missing: str
    """Why the page is missing; empty: it is there."""
    touched_line: int | None
    """Place of the line in `page`, from 0, that shows the element acted on; None: none."""
    drawing: PageDrawing | None
    """The page part by part; None if it is missing."""
    prompt: str
    """Exactly what the policy read, its special tokens written out."""
    prompt_tokens: int
    tokens: list[Token]
    """Tokens of the answer, the sampled end token included."""
    perplexity: float | None
    """exp of the mean surprise over the answer; None of a demonstrator."""


def screenshot(run: Source, connection: Connection, episode: str, sha256: str) -> bytes:
    """An image that the read model knows as a screenshot of the episode, as JPEG.

    Raises:
        NotInReadModel: it knows none of this digest.
        BlobMissing, BlobCorrupt: it is not there any more, or damaged.

    """
    known = (screenshots.c.episode == episode, screenshots.c.sha256 == sha256)
    size = select(screenshots.c.size_bytes).where(*known).limit(1)
    found = connection.scalar(size)
    if found is None:
        raise NotInReadModel(f"episode {episode!r} of run {run.name} has no screenshot {sha256[:16]!r}")
    return run.blobs.get(BlobRef(sha256, found))


class EpisodeEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The page that an episode ended on."""

    episode: str
    page_missing: str
    """Why the page is missing; empty: it is there."""
    drawing: PageDrawing | None


async def step_detail(run: RunHandle, position: int, *, before: int | None = None) -> StepDetail:
    """The step recorded at a position. `before`: position of the step before it, to whose page its own is compared.

    Raises:
        NotInReadModel: there is no step at that position.
        ModelFolderMissing: its tokens cannot be written as text.
        HindcastError: the log cannot be read.

    """
    found = await read_steps(run, [position] if before is None else [before, position])
    # a tokenizer takes a second to load, and a page of a megabyte as long to write: other visitors do not wait for that
    return await asyncio.to_thread(
        step_in_full, run, position, found[position], before=None if before is None else found[before]
    )


async def read_steps(run: Source, positions: Iterable[int]) -> dict[int, StepTaken]:
    """The steps recorded at these positions. Raises NotInReadModel where there is none, HindcastError."""
    found = {}
    async with run.connect_log() as log:
        for position in positions:
            if not 0 < position <= FURTHEST:
                raise NotInReadModel(f"there is no position {position} in the log of run {run.name}")
            stored = await log.read(after=position - 1, limit=1)
            recorded = decode(stored[0], strict=False) if stored and stored[0].position == position else None
            if recorded is None or not isinstance(recorded.fact, StepTaken):
                raise NotInReadModel(f"there is no step at position {position} of run {run.name}")
            found[position] = recorded.fact
    return found


async def episode_end(run: Source, episode: str, *, last_step: int | None) -> EpisodeEnd:
    """The page that an episode ended on. `last_step`: position of its last step; None: it has none.

    Raises:
        NotInReadModel: the episode has not ended.
        HindcastError: the log cannot be read.

    """
    async with run.connect_log() as log:
        stored = await log.last_under(subject_of(log.run, EpisodeEnded, key=episode))
    recorded = None if stored is None else decode(stored, strict=False)
    if recorded is None or not isinstance(recorded.fact, EpisodeEnded):
        raise NotInReadModel(f"episode {episode!r} of run {run.name} has not ended")
    steps = {} if last_step is None else await read_steps(run, [last_step])
    return await asyncio.to_thread(
        end_in_full, run, recorded.fact, last_step=next(iter(steps.values()), None)
    )


def end_in_full(run: Source, fact: EpisodeEnded, *, last_step: StepTaken | None) -> EpisodeEnd:
    """The page that an episode ended on."""
    page, missing = _page(run, fact.final_observation)
    before = None if last_step is None else _page(run, last_step.observation)[0]
    return EpisodeEnd(
        episode=fact.episode,
        page_missing=missing,
        drawing=None if page is None else draw_page(page, touched=None, before=before),
    )


def steps_in_full(run: Source, facts: Mapping[int, StepTaken]) -> dict[int, StepDetail]:
    """The steps of one episode, by position, in their order. Raises ModelFolderMissing."""
    found, before = {}, None
    for position, fact in facts.items():
        found[position] = step_in_full(run, position, fact, before=before)
        before = fact
    return found


def step_in_full(
    run: Source, position: int, fact: StepTaken, *, before: StepTaken | None = None
) -> StepDetail:
    """The step at a position. `before`: the step before it. Raises ModelFolderMissing."""
    page, missing = _page(run, fact.observation)
    element = None if fact.action is None else fact.action.element
    earlier = None if before is None else _page(run, before.observation)[0]
    text = "" if page is None else render_lines(page)
    tokenizer = _tokenizer(policy_folder(run.settings.policy.base))
    ids = unpack_ids(fact.prompt_ids).tolist()
    logprobs = unpack_floats(fact.logprobs).tolist()
    versions = unpack_ids(fact.versions).tolist()
    answered = unpack_ids(fact.action_ids).tolist()
    sampled = bool(versions) and max(versions) >= 0 and bool(logprobs)
    return StepDetail(
        position=position,
        episode=fact.episode,
        index=fact.index,
        url=fact.url,
        page=text,
        page_missing=missing,
        touched_line=None if page is None else _touched_line(page, text, element),
        drawing=None if page is None else draw_page(page, touched=element, before=earlier),
        prompt=tokenizer.decode(ids, skip_special_tokens=False),
        prompt_tokens=len(ids),
        tokens=[
            Token(
                text=tokenizer.decode([one], skip_special_tokens=False),
                logprob=logprobs[place] if place < len(logprobs) else 0.0,
                version=versions[place] if place < len(versions) else -1,
            )
            for place, one in enumerate(answered)
        ],
        perplexity=math.exp(-sum(logprobs) / len(logprobs)) if sampled else None,
    )


def _page(run: Source, ref: BlobRef | None) -> tuple[Page | None, str]:
    """A recorded page, or why it is missing."""
    if ref is None:
        return None, "no page was recorded here"
    try:
        return decode_msgpack(run.blobs.get(ref), Page), ""
    except HindcastError as error:
        return None, str(error)
    except msgspec.MsgspecError as error:
        return None, f"what was recorded is no page that this version reads: {error}"


def _touched_line(page: Page, text: str, element: int | None) -> int | None:
    """The place of the line that shows the element acted on, in the page's `text`."""
    if element is None:
        return None
    first = text.count("\n") + 1 - len(page.nodes) - page.truncated
    return next((first + place for place, node in enumerate(page.nodes) if node.id == element), None)


@lru_cache(maxsize=4)
def _tokenizer(folder: Path) -> Tokenizer:
    """Without transformers, which takes seconds and 300 MB to load, and torch. Raises ModelFolderMissing."""
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise ModelFolderMissing(
            f"the tokens of this step were written with {file}, which is not on this machine. Put the folder of the run's "
            "policy.base there"
        )
    return Tokenizer.from_file(str(file))
