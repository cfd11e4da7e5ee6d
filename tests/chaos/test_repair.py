"""A log that the broker lost a part of is made whole from its archive, byte for byte, and nothing is thrown away silently."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec
import pytest

from hindcast.app.runs.archive import archive_source
from hindcast.app.runs.fork import fork_run
from hindcast.app.runs.repair import RepairResult, repair_log
from hindcast.app.runs.runs import IMPORTING, RunHandle, create_run, open_run
from hindcast.app.settings.configuration import resolve
from hindcast.core.domain.task import Task
from hindcast.core.errors import ForeignLog
from hindcast.events.archive.errors import ArchiveDamaged
from hindcast.events.archive.writer import ArchiveWriter
from hindcast.events.catalogue import LogRepaired, RunStarted, TaskProposed
from hindcast.events.envelope import Record, Stored
from hindcast.events.jetstream.stream_log import JetStreamLog
from hindcast.events.log.port import Ancestor
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.reader import read
from hindcast.learner.numerics import fingerprint
from hindcast.storage.blobs.store import BlobStore

pytestmark = [pytest.mark.broker, pytest.mark.torch]

RUN = "damaged"
LARGE = 70_000
"""Bytes of random text in a task: several blocks of the broker, however well it compresses."""


def tasks(seed: int, count: int) -> Iterator[Task]:
    random = Random(seed)
    for number in range(count):
        text = random.randbytes(LARGE).hex()
        yield Task(
            environment="store", family="find", seed=number, instruction=text, goal={}, max_steps=9
        )  # fmt: skip


async def propose(run: RunHandle, seed: int, count: int) -> None:
    """One life of a curriculum."""
    async with (
        run.connect_log("curriculum") as log,
        Publisher(log, producer="curriculum.1", code_rev="test", settings=run.settings.log) as publisher,
    ):
        for task in tasks(seed, count):
            await publisher.publish(TaskProposed(task=task, source="seeded"), entity=task.id)
            await publisher.commit()


def started(run: RunHandle, blobs: BlobStore) -> RunStarted:
    return RunStarted(
        settings=run.settings.model_dump(mode="json"),
        recipe="mgrpo",
        run_seed=1,
        packages={},
        fingerprint=fingerprint(1),
        base_policy=blobs.put(b"weights"),
        base_policy_name="base",
        behaviour={},
    )


async def stored_in(run: RunHandle) -> list[Stored]:
    found: list[Stored] = []
    async with run.connect_log() as log:
        while batch := await log.read(after=len(found), limit=500):
            found += batch
    return found


async def archived(run: RunHandle, folder: Path) -> None:
    await archive_source(
        run, folder, follow=False, pages=True, on_event=lambda *_: None, on_blob=lambda _: None
    )


async def repaired(run: RunHandle, folder: Path) -> RepairResult:
    return await repair_log(run, folder, reason="a flipped bit", on_event=lambda _: None)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Stored]]:
    """A home, no broker running, and an archive of all but the last events; and what the log holds."""
    folder = tmp_path_factory.mktemp("whole")
    overrides = [f"log.max_bytes={16 * 1024 * 1024}"]  # blocks are a quarter of it
    run = create_run(
        resolve(environment={}, folder=folder, overrides=overrides), home=folder / "home", name=RUN
    )

    async def fill() -> list[Stored]:
        async with run.connect_log("admin") as log:
            async with Publisher(log, producer="app.1", code_rev="t", settings=run.settings.log) as publisher:
                await publisher.publish(started(run, run.blobs), entity=RUN)
            await propose(run, 1, 60)
            await archived(run, folder / "archive")
            await propose(run, 2, 10)
            return await stored_in(run)

    return folder, asyncio.run(fill())


@pytest.fixture
def damaged(whole: tuple[Path, list[Stored]], tmp_path: Path) -> RunHandle:
    shutil.copytree(whole[0], tmp_path / "copy", ignore=shutil.ignore_patterns("broker.json", "broker.users"))
    return open_run(RUN, home=tmp_path / "copy" / "home")


def archive_of(run: RunHandle) -> Path:
    return run.home.parent / "archive"


def flip(run: RunHandle, *, block: int, at: float) -> None:
    """One bit, in the broker's file."""
    blocks = sorted(run.home.glob("broker/jetstream/*/streams/*/msgs/*.blk"), key=lambda path: int(path.stem))
    assert len(blocks) > 2
    content = bytearray(blocks[block].read_bytes())
    content[int(at * len(content))] ^= 1
    blocks[block].write_bytes(content)


@pytest.mark.parametrize(("block", "at"), [(0, 0.2), (1, 0.5), (-1, 0.9)])
async def test_every_position_gets_its_old_bytes_back(
    whole: tuple[Path, list[Stored]], damaged: RunHandle, block: int, at: float
) -> None:
    flip(damaged, block=block, at=at)
    report = await repaired(damaged, archive_of(damaged))
    after = await stored_in(damaged)
    kept = [entry for entry in whole[1] if entry.position <= report.last]
    assert after[: len(kept)] == kept
    assert len(kept) == 61 + report.saved, "what was archived, and what the stream still held behind it"
    async with damaged.connect_log() as log:
        facts = [recorded.fact async for recorded in read(log)]
    assert facts[-1] == LogRepaired(first=1, last=report.last, reason="a flipped bit")
    assert len(facts) == report.last + 1
    await propose(damaged, 3, 2)
    assert len(await stored_in(damaged)) == report.last + 3


async def test_what_stands_behind_a_hole_is_kept(
    whole: tuple[Path, list[Stored]], damaged: RunHandle
) -> None:
    """The broker gives out nothing from a damaged place on, and yet has what stands behind it, also what came later."""
    flip(damaged, block=1, at=0.5)
    async with damaged.connect("reader"):
        # one broker all the while: at its next start it would lose all that
        assert len(await stored_in(damaged)) < 61
        await propose(damaged, 9, 3)
        report = await repaired(damaged, archive_of(damaged))
    after = await stored_in(damaged)
    assert after[:71] == whole[1]
    assert (report.last, report.saved, report.displaced, report.lost_after) == (74, 13, 0, None)


async def test_what_took_the_place_of_lost_events_is_laid_aside(
    whole: tuple[Path, list[Stored]], damaged: RunHandle
) -> None:
    """The broker's folder was set back to an older copy, and positions were given out a second time."""
    shutil.rmtree(next(damaged.home.glob("broker/jetstream/*/streams")) / f"RUN_{RUN}")
    async with damaged.connect_log("admin"), damaged.connect("importer") as connection:
        log = JetStreamLog(connection, RUN, damaged.settings.log)
        for stored in whole[1][:40]:
            await log.append([Record(stored.subject, stored.data, stored.id)])
    await propose(damaged, 9, 3)
    late = (await stored_in(damaged))[40:]
    report = await repaired(damaged, archive_of(damaged))
    assert (report.displaced, report.restored, report.saved) == (3, 21, 0)
    assert report.displaced_file is not None
    content = Path(report.displaced_file).read_bytes()
    assert content == b"".join(msgspec.msgpack.encode(msgspec.structs.asdict(entry)) for entry in late)
    assert (await stored_in(damaged))[:61] == whole[1][:61]


async def test_a_stream_that_is_gone_altogether_comes_back(
    whole: tuple[Path, list[Stored]], damaged: RunHandle
) -> None:
    shutil.rmtree(next(damaged.home.glob("broker/jetstream/*/streams")) / f"RUN_{RUN}")
    report = await repaired(damaged, archive_of(damaged))
    assert (report.restored, report.saved) == (61, 0)
    assert (await stored_in(damaged))[:61] == whole[1][:61]


@pytest.mark.parametrize("step", ["fill_stream", "record_repair", "forget_noted"])
async def test_an_interrupted_repair_keeps_the_run_closed_until_it_is_finished(
    whole: tuple[Path, list[Stored]], damaged: RunHandle, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    flip(damaged, block=0, at=0.5)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(f"hindcast.app.runs.repair.{step}", killed)
        with pytest.raises(KeyboardInterrupt):
            await repaired(damaged, archive_of(damaged))
    with pytest.raises(ForeignLog, match="hindcast repair"):
        await stored_in(damaged)
    report = await repaired(damaged, archive_of(damaged))
    assert (await stored_in(damaged))[:61] == whole[1][:61]
    assert not (damaged.folder / IMPORTING).exists()
    async with damaged.connect_log() as log:
        facts = [recorded.fact async for recorded in read(log)]
    said = LogRepaired(first=1, last=report.last, reason="a flipped bit")
    assert [fact for fact in facts if isinstance(fact, LogRepaired)] == [said]
    assert len(facts) == report.last + 1


async def test_a_fork_is_repaired_from_the_archive_of_its_own_part(damaged: RunHandle) -> None:
    """As its archiver writes it: the prefix is its parent's."""
    await fork_run(damaged, at=30, name="branch", overrides=(), said=lambda _: None)
    branch = open_run("branch", home=damaged.home)
    await propose(branch, 4, 3)
    before = await stored_in(branch)
    assert len(before) == 34
    folder = damaged.home / "own"
    lineage = (Ancestor(run=RUN, until=30),)
    writer = ArchiveWriter.open(folder, run="branch", first=31, lineage=lineage)
    writer.append(before[30:33])
    writer.close()
    report = await repaired(branch, folder)
    assert (report.first, report.last, report.saved, report.restored) == (31, 34, 1, 0)
    assert (await stored_in(branch))[:34] == before
    late = damaged.home / "late"
    ArchiveWriter.open(late, run="branch", first=33, lineage=lineage).close()
    with pytest.raises(ForeignLog, match=r"begins with position 33.* Nothing was changed"):
        await repaired(branch, late)


async def test_a_damaged_or_foreign_archive_changes_nothing(
    whole: tuple[Path, list[Stored]], damaged: RunHandle
) -> None:
    segment = next((archive_of(damaged) / "segments").glob("*.seg"))
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)
    with pytest.raises(ArchiveDamaged, match="Nothing was changed"):
        await repaired(damaged, archive_of(damaged))
    assert await stored_in(damaged) == whole[1]
