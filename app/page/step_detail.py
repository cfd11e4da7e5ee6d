"""One step in full, from the log and the blobs: what the policy read, token by token, and the page."""

import asyncio
import math
from functools import lru_cache
from pathlib import Path

import msgspec
from sqlalchemy import select
from tokenizers import Tokenizer

from hindcast.app.page.runs import OpenRun
from hindcast.app.runs.runs import RunHandle
from hindcast.app.runs.sources import Source
from hindcast.core.domain.arrays import unpack_floats, unpack_ids
from hindcast.core.domain.observation import Page
from hindcast.core.errors import HindcastError
from hindcast.core.models.folders import policy_folder
from hindcast.core.prompts.rendering.lines import render_lines
from hindcast.core.structs import decode_msgpack
from hindcast.events.catalogue import StepTaken
from hindcast.events.codec import decode
from hindcast.events.envelope import BlobRef
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
    prompt: str
    """Exactly what the policy read, its special tokens written out."""
    prompt_tokens: int
    tokens: list[Token]
    """Tokens of the answer, the sampled end token included."""
    perplexity: float | None
    """exp of the mean surprise over the answer; None of a demonstrator."""


def screenshot(run: OpenRun, episode: str, sha256: str) -> bytes:
    """An image that the read model knows as a screenshot of the episode, as JPEG.

    Raises:
        NotInReadModel: it knows none of this digest.
        BlobMissing, BlobCorrupt: it is not there any more, or damaged.

    """
    known = (screenshots.c.episode == episode, screenshots.c.sha256 == sha256)
    size = select(screenshots.c.size_bytes).where(*known).limit(1)
    with run.model.reading() as connection:
        found = connection.scalar(size)
    if found is None:
        raise NotInReadModel(
            f"episode {episode!r} of run {run.handle.name} has no screenshot {sha256[:16]!r}"
        )
    return run.handle.blobs.get(BlobRef(sha256, found))


async def step_detail(run: RunHandle, position: int) -> StepDetail:
    """The step recorded at a position.

    Raises:
        NotInReadModel: there is no step at that position.
        ModelFolderMissing: its tokens cannot be written as text.
        HindcastError: the log cannot be read.

    """
    if not 0 < position <= FURTHEST:
        raise NotInReadModel(f"there is no position {position} in the log of run {run.name}")
    async with run.connect_log() as log:
        stored = await log.read(after=position - 1, limit=1)
    recorded = decode(stored[0], strict=False) if stored and stored[0].position == position else None
    if recorded is None or not isinstance(recorded.fact, StepTaken):
        raise NotInReadModel(f"there is no step at position {position} of run {run.name}")
    # a tokenizer takes a second to load, and a page of a megabyte as long to write: other visitors do not wait for that
    return await asyncio.to_thread(step_in_full, run, position, recorded.fact)


def step_in_full(run: Source, position: int, fact: StepTaken) -> StepDetail:
    """The step at a position. Raises ModelFolderMissing."""
    page, missing, touched_line = _page(run, fact)
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
        page=page,
        page_missing=missing,
        touched_line=touched_line,
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


def _page(run: Source, fact: StepTaken) -> tuple[str, str, int | None]:
    """The page as text, why it is missing, and the place of the line that shows the element acted on."""
    if fact.observation is None:
        return "", "this step recorded no page", None
    try:
        page = decode_msgpack(run.blobs.get(fact.observation), Page)
    except HindcastError as error:
        return "", str(error), None
    except msgspec.MsgspecError as error:
        return "", f"what was recorded is no page that this version reads: {error}", None
    lines = render_lines(page).split("\n")
    element = None if fact.action is None else fact.action.element
    first = len(lines) - len(page.nodes) - page.truncated
    touched = (
        first + place for place, node in enumerate(page.nodes) if element is not None and node.id == element
    )
    return "\n".join(lines), "", next(touched, None)


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
