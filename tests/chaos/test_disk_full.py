"""Real full disks: a small memory disk, filled to the last byte and freed again, under blobs, database, broker, system."""

import asyncio
import errno
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Connect, LiveBroker

from hindcast.app.runs.runs import open_run
from hindcast.app.system.bus import BrokerDisk
from hindcast.app.system.supervisor import Supervisor
from hindcast.core.errors import DiskFull
from hindcast.core.settings.schema import LogSettings, StorageSettings
from hindcast.events.catalogue import ControlRequested, EpisodeEnded, TaskAdmitted, UpdateApplied
from hindcast.events.jetstream.stream_log import JetStreamLog
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.reader import read
from hindcast.storage.blobs.store import BlobStore
from hindcast.storage.readmodel.database import ReadModel
from hindcast.storage.readmodel.projector import run_projector
from processes.system import COMMAND, ROOT, Home, settings
from stories.synthetic_run import a_run, record

pytestmark = pytest.mark.broker

MIB = 1024 * 1024
WAIT_S = 120.0


class SmallDisk:
    """A disk of its own."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._ballast = place / "ballast"

    def fill(self, *, leave_bytes: int = 0) -> None:
        """Take all room but so much, or all where others take the last of it meanwhile."""
        with self._ballast.open("ab", buffering=0) as file:
            while (free := os.statvfs(self.place)).f_bavail * free.f_bsize > leave_bytes:
                missing = free.f_bavail * free.f_bsize - leave_bytes
                try:
                    file.write(bytes(min(MIB, missing)))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    return

    def free(self) -> None:
        self._ballast.unlink()


@pytest.fixture
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SmallDisk]:
    """Parametrised by its size in MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={request.param}m", "tmpfs", str(place)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount program here to make a small disk with")
    if done.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    yield SmallDisk(place)
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.parametrize("small_disk", [8], indirect=True)
def test_a_blob_waits_for_room_and_nothing_half_written_is_left(small_disk: SmallDisk) -> None:
    store = BlobStore(small_disk.place / "blobs", full_wait_s=0.2)
    kept = store.put(b"before")
    small_disk.fill(leave_bytes=MIB)
    content = os.urandom(2 * MIB)
    with pytest.raises(DiskFull, match="No space left on device"):
        store.put(content)
    assert [path.stat().st_size for path in small_disk.place.rglob("*/*/*") if path.is_file()] == [6]
    patient = BlobStore(small_disk.place / "blobs", full_wait_s=WAIT_S)
    freeing = threading.Timer(0.5, small_disk.free)
    freeing.start()
    assert patient.get(patient.put(content)) == content
    assert patient.get(kept) == b"before"


@pytest.mark.parametrize("small_disk", [8], indirect=True)
async def test_the_projector_waits_for_room_and_loses_nothing(small_disk: SmallDisk) -> None:
    log, facts = MemoryLog("tale"), a_run(1, groups=60)
    await record(log, facts)
    url = f"sqlite:///{small_disk.place / 'readmodel.sqlite'}"
    small_disk.fill(leave_bytes=MIB // 2)
    projecting = asyncio.create_task(
        run_projector(log, url, StorageSettings(project_events=100), until=len(facts))
    )
    await asyncio.sleep(3)
    assert not projecting.done(), "it fitted: the disk is not small enough"
    model = ReadModel(url, run=log.run)
    stopped_at = await asyncio.to_thread(model.position)
    assert stopped_at < len(facts)
    small_disk.free()
    async with asyncio.timeout(WAIT_S):
        assert await projecting == len(facts)
    model.close()


@pytest.mark.parametrize("small_disk", [40], indirect=True)
async def test_a_broker_that_lost_its_disk_is_renewed_and_whatever_was_acknowledged_is_there(
    small_disk: SmallDisk, tmp_path: Path, connect_as: Connect
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "broker").symlink_to(small_disk.place)
    broker = LiveBroker(home)
    said: list[str] = []
    watch = BrokerDisk(small_disk.place, say=lambda state, detail: said.append(f"{state} {detail}"))
    supervisor = Supervisor("bus.1", broker.plan.command, folder=home / "processes", watch=watch)
    supervising = threading.Thread(target=supervisor.run)
    supervising.start()
    chosen = LogSettings(max_bytes=1024 * MIB, append_timeout_s=60, linger_ms=2)
    acknowledged: list[str] = []
    try:
        await JetStreamLog.create_or_open(await connect_as(broker, "admin"), "full", chosen)
        log = await JetStreamLog.open(await connect_as(broker, "curriculum"), "full", chosen)
        async with (
            asyncio.timeout(WAIT_S),
            Publisher(log, producer="curriculum.1", code_rev="t", settings=chosen) as publisher,
        ):
            small_disk.fill(leave_bytes=2 * MIB)
            wanted = 10**9

            async def publish() -> None:
                number = 0
                while not (supervisor.restarts and len(acknowledged) >= wanted):
                    names = [f"{number}_{n}_{os.urandom(500).hex()}" for n in range(20)]
                    for name in names:
                        await publisher.publish(TaskAdmitted(task_id=name, phase=0), entity="e")
                    await publisher.commit()
                    acknowledged.extend(names)
                    number += 1

            publishing = asyncio.create_task(publish())
            while not said:  # noqa: ASYNC110 - told from a thread
                await asyncio.sleep(0.1)
            before = len(acknowledged)
            await asyncio.sleep(2)
            assert len(acknowledged) == before, "the broker acknowledges although it cannot write"
            assert before > 0
            small_disk.free()
            wanted = before + 100
            await publishing
        stored = [recorded.fact.task_id async for recorded in read(log)]  # type: ignore[attr-defined]
        assert len(stored) == len(set(stored))
        assert set(acknowledged) == set(stored)
        assert supervisor.restarts == 1
        assert said[0].startswith(f"paused the broker cannot write to {small_disk.place}")
    finally:
        supervisor._stop(15, None)
        await asyncio.to_thread(supervising.join)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("small_disk", [600], indirect=True)
def test_a_system_on_a_disk_that_runs_full_pauses_says_so_and_goes_on_by_itself(
    small_disk: SmallDisk, tmp_path: Path
) -> None:
    """Nearly full: a pause that stands in the log. Full: everybody waits. Room: everything goes on, and verifies."""
    home = Home(small_disk.place / "home")
    spoken = tmp_path / "spoken.txt"
    changes = {"storage.min_free_mib": "140", "storage.full_wait_s": "2", "log.append_timeout_s": "30"}
    with spoken.open("w") as output:
        process = subprocess.Popen(
            [*COMMAND, "start", "--run", "full", *settings(changes)],
            cwd=ROOT,
            env=home.environment,
            stdout=output,
        )
    try:
        home.wait_for("a first update", lambda: counted(home, UpdateApplied) >= 1)
        small_disk.fill(leave_bytes=120 * MIB)
        home.wait_for("a pause", lambda: commands(home) == ["pause"])
        small_disk.fill()
        home.wait_for("everybody to wait for room", lambda: "is FULL" in spoken.read_text())
        time.sleep(5)
        assert process.poll() is None, spoken.read_text()
        ended = counted(home, EpisodeEnded)
        small_disk.free()
        home.wait_for("the run to be resumed", lambda: commands(home) == ["pause", "resume"])
        home.wait_for("an episode after that", lambda: counted(home, EpisodeEnded) > ended)
        updates = counted(home, UpdateApplied)
        home.wait_for("an update after that", lambda: counted(home, UpdateApplied) > updates)
    finally:
        assert home.stop(process) == 0
    words = spoken.read_text()
    assert "PAUSED by curriculum: the disk of" in words
    assert "is FULL" in words
    assert "resumed: there is room again" in words
    assert home.json("verify", "full", timeout_s=300)["identical"]
    assert home.json("rebuild", "full")["identical"]


def facts_of(home: Home) -> list[object]:
    async def gather() -> list[object]:
        async with open_run("full", home=home.folder).connect_log() as log:
            return [recorded.fact async for recorded in read(log)]

    return asyncio.run(gather())


def counted(home: Home, kind: type) -> int:
    if not (home.folder / "ready.json").exists():
        return 0
    return sum(isinstance(fact, kind) for fact in facts_of(home))


def commands(home: Home) -> list[str]:
    return [fact.command for fact in facts_of(home) if isinstance(fact, ControlRequested)]
