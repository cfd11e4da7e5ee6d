"""A run in an archive, with pages, screenshots and hostile words: what exports are tried on. No broker, no browser."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from hindcast.app.cli import app
from hindcast.app.runs.archive_source import ArchiveSource
from hindcast.core.domain.arrays import pack_ids
from hindcast.core.domain.observation import Box, Mark, Node, Page
from hindcast.events.catalogue import EpisodeEnded, EpisodeStarted, RunForked, StepTaken
from hindcast.events.catalogue.episode import Screenshot
from hindcast.events.envelope import BlobRef, Stored
from hindcast.events.log.memory import MemoryLog
from hindcast.storage.archive.archiver import BLOBS
from hindcast.storage.blobs.store import BlobStore
from stories.archive_story import RUN, write_archive
from stories.synthetic_run import Told, a_run, record

HOSTILE = '<script>window.pwned = 1</script><img src=x onerror="window.pwned = 1">{{ 7 * 7 }} --- "\\'
FIRST_PROMPT = pack_ids(range(1000, 1064))
"""Members of a group begin with the same prompt, so some answer it differently."""
IMAGE = b"\xff\xd8not quite a picture"


def page(number: int) -> Page:
    """A page of a shop."""
    return Page(
        url=f"http://127.0.0.1/page/{number}",
        title="Shop",
        nodes=(
            Node(kind="heading", tag="h1", text=HOSTILE),
            *(Node(kind="button", tag="button", text=f"Item {id_}", id=id_) for id_ in range(41)),
            Node(kind="input", tag="input", value="a", id=41, attributes={"placeholder": "search"}),
        ),
        ordinal=number,
    )


def seen(told: Told, blobs: BlobStore) -> Told:
    """The same with what was seen, where the tale has nothing to see."""
    fact = told.fact
    if isinstance(fact, EpisodeStarted):
        return told._replace(fact=msgspec.structs.replace(fact, instruction=HOSTILE))
    if isinstance(fact, EpisodeEnded):
        last = put_page(blobs, 99)
        return told._replace(
            fact=msgspec.structs.replace(fact, final_observation=last, screenshot=picture(blobs, "after"))
        )
    if isinstance(fact, StepTaken):
        shot = picture(blobs, "before") if fact.index == 0 else None
        if fact.index == 0:
            fact = msgspec.structs.replace(fact, prompt_ids=FIRST_PROMPT)
        there = None if fact.index == 3 else put_page(blobs, fact.index)
        return told._replace(
            fact=msgspec.structs.replace(fact, observation=there, screenshot=shot, url=HOSTILE)
        )
    return told


def put_page(blobs: BlobStore, number: int) -> BlobRef:
    return blobs.put(msgspec.msgpack.encode(page(number)))


def picture(blobs: BlobStore, when: str) -> Screenshot:
    shown = Screenshot(
        image=blobs.put(IMAGE),
        missing="",
        when="before",
        width=640,
        height=512,
        scale=0.5,
        marks=(Mark(7, Box(10, 20, 30, 40)),),
    )
    return msgspec.structs.replace(shown, when=when)


async def told_archive(folder: Path, *, seed: int = 1, groups: int = 6) -> tuple[ArchiveSource, list[Stored]]:
    """An archive and the events in it."""
    kept = folder.with_name(f"{folder.name}-blobs")  # an archive begins in an empty folder
    blobs = BlobStore(kept)
    facts = [seen(told, blobs) for told in a_run(seed, groups=groups) if not isinstance(told.fact, RunForked)]
    log = MemoryLog(RUN)
    await record(log, facts, seed=seed)
    events = await log.read(after=0, limit=len(facts))
    write_archive(folder, events, batch=100)
    kept.rename(folder / BLOBS)
    return ArchiveSource(folder), events


def export_archive(folder: Path, format_name: str, *options: str) -> Path:
    """The folder that `hindcast export` makes of the run in one format, and of held-out episodes where the options say so."""
    source, _ = asyncio.run(told_archive(folder / "tale"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HINDCAST_HOME", str(folder / "home"))
        arguments = [str(source.folder), "--to", str(folder / "out"), "--format", format_name, *options]
        done = CliRunner().invoke(app, ["export", *arguments])
    assert done.exit_code == 0, done.output
    return folder / "out"
