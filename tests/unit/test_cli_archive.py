"""`hindcast archive`, questions put to an archive, and `hindcast import`: with a real broker, from one home into another."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

import hindcast.app.runs.archive as lasting
import hindcast.app.runs.import_archive as importing
from hindcast.app.cli import app
from hindcast.app.runs.archive import ArchivingHeldUp, keep_archiving
from hindcast.app.runs.fork import fork_run
from hindcast.app.runs.import_archive import plan_import
from hindcast.app.runs.runs import IMPORTING, RunHandle, open_run
from hindcast.app.runs.sources import ArchiveSource, open_source
from hindcast.app.settings.configuration import resolve
from hindcast.app.system.worker import BEYOND_RESTART
from hindcast.core.errors import CorruptEvent, DiskFull, ForeignLog, SettingsError
from hindcast.core.settings.schema import Settings
from hindcast.events.archive.archive_log import ArchiveLog
from hindcast.events.archive.check import check_archive
from hindcast.events.archive.errors import ArchiveDamaged, ArchiveMissing, ArchiveReadOnly
from hindcast.events.archive.manifest import is_archive, load, segment_path
from hindcast.events.archive.writer import ArchiveWriter
from hindcast.events.blob_references import blobs_in
from hindcast.events.catalogue import CheckpointSaved, RunFinished, RunStarted, SegmentArchived, WaitExceeded
from hindcast.events.codec import decode, decode_envelope
from hindcast.events.envelope import BlobRef, Record, Stored
from hindcast.events.log.hash_chain import RollingDigest
from hindcast.events.log.port import Ancestor, EventLog
from hindcast.events.log.publisher import Publisher
from hindcast.storage.blobs.store import BlobStore
from stories.archive_story import QUICK, all_of, copy, plain
from stories.recorded_home import make_home
from stories.synthetic_run import FINGERPRINT, Told

pytestmark = pytest.mark.torch

RUN = "tale"
WAITS = 40


def facts(blobs: BlobStore, settings: Settings) -> list[Told]:
    """A run with blobs that are there."""
    started = RunStarted(
        settings=settings.model_dump(mode="json"),
        recipe="mgrpo",
        run_seed=1,
        packages={},
        fingerprint=FINGERPRINT,
        base_policy=blobs.put(b"base weights"),
        base_policy_name="base",
        behaviour={},
    )
    saved = CheckpointSaved(update=1, batch=0, version=1, state="0" * 64, blob=blobs.put(b"a checkpoint"))
    told = [Told("opening.1", RUN, started), Told("learner.1", "1", saved)]
    told += [
        Told(f"learner.{1 + number % 2}", "e", WaitExceeded(setting="s", limit_s=number, waited_for="w"))
        for number in range(WAITS)
    ]
    return [*told, Told("opening.1", RUN, RunFinished(reason="done", updates=0, episodes=0))]


@pytest.fixture(scope="module")
def handle(tmp_path_factory: pytest.TempPathFactory) -> RunHandle:
    home = tmp_path_factory.mktemp("archived") / "home"
    blobs = BlobStore(home / "runs" / RUN / "blobs")
    settings = resolve(environment={}, folder=home.parent).settings
    return asyncio.run(make_home(home, facts(blobs, settings)))


@pytest.fixture(scope="module")
def folder(handle: RunHandle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run's archive."""
    folder = tmp_path_factory.mktemp("archive") / "tale"
    report = answer(handle.home, "archive", RUN, str(folder))
    assert (report["events"], report["blobs"], report["missing"]) == (WAITS + 3, 2, [])
    return folder


def invoke(home: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"HINDCAST_HOME": str(home)})


def answer(home: Path, *arguments: str) -> Any:
    result = invoke(home, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout.splitlines()[-1])


def named_in(folder: Path) -> list[BlobRef]:
    """The blobs that an archive's events name."""
    return [blob for stored in all_of(folder) for blob, _ in blobs_in(decode_envelope(stored))]


async def stored_in(log: EventLog) -> list[tuple[int, str, str, bytes]]:
    events: list[Stored] = []
    while batch := await log.read(after=len(events), limit=1000):
        events += batch
    return plain(events)


class TestAsked:
    """An archive answers what a run does, where there is no home and no broker."""

    def test_it_goes_on_where_it_ended_and_is_checked(self, handle: RunHandle, folder: Path) -> None:
        assert answer(handle.home, "archive", RUN, str(folder))["events"] == 0
        report = answer(folder, "archive", "check", str(folder))
        assert (report["events"], report["blobs"], report["defects"]) == (WAITS + 3, 2, [])
        assert answer(folder, "archive", "show", str(folder))["last"] == WAITS + 3

    def test_log_commands_and_rebuild_read_it(self, folder: Path, tmp_path: Path) -> None:
        nowhere = tmp_path / "no-home"
        assert answer(nowhere, "log", "tail", "--run", str(folder)) == {"cursor": WAITS + 3}
        shown = invoke(nowhere, "log", "show", "1", "--run", str(folder))
        assert "run.started" in shown.stdout
        found = invoke(nowhere, "log", "grep", "limit_s=7", "--run", str(folder))
        assert "wait.exceeded" in found.stdout
        stats = json.loads(
            invoke(nowhere, "log", "stats", "--run", str(folder), "--json").stdout.splitlines()[0]
        )
        assert {chain["broken"] for chain in stats["chains"].values()} == {None}
        report = answer(nowhere, "rebuild", str(folder), "--into", str(tmp_path / "tables.sqlite"))
        assert (report["identical"], report["events"]) == (True, WAITS + 3)
        assert (tmp_path / "tables.sqlite").exists()
        assert not nowhere.exists()

    def test_its_source_has_the_runs_name_settings_and_blobs(self, folder: Path, handle: RunHandle) -> None:
        source = open_source(str(folder))
        assert isinstance(source, ArchiveSource)
        assert (source.name, source.settings) == (RUN, handle.settings)
        assert source.blobs.get(source.started.base_policy) == b"base weights"

    def test_a_path_without_an_archive_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ArchiveMissing, match=r"neither a run's name nor the folder of an archive"):
            open_source(str(tmp_path))

    async def test_it_is_not_appended_to(self, folder: Path) -> None:
        with pytest.raises(ArchiveReadOnly, match=f"hindcast import {folder}"):
            await ArchiveLog(folder).append([Record("run.tale.notice.x", b"", "1")])

    def test_damage_is_told_with_exit_code_1(self, folder: Path, tmp_path: Path) -> None:
        place = copy(folder, tmp_path / "bent")
        path = segment_path(place, 1)
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        result = invoke(tmp_path, "archive", "check", str(place))
        assert (result.exit_code, "DAMAGED" in result.stdout) == (1, True)
        assert "The archiver drops them" not in result.stdout, "of what is altered it drops nothing"
        assert isinstance(invoke(tmp_path, "import", str(place)).exception, ArchiveDamaged)

    def test_ctrl_c_ends_following_in_good_order(self, handle: RunHandle, tmp_path: Path) -> None:
        place = tmp_path / "followed"
        program = "from hindcast.app.cli import main; main()"
        following = subprocess.Popen(
            [sys.executable, "-c", program, "archive", RUN, str(place), "--follow", "--json"],
            env={**os.environ, "HINDCAST_HOME": str(handle.home), "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
        )
        while not (place / "segments").exists() or not any((place / "segments").glob("*.seg")):
            assert following.poll() is None
        following.send_signal(signal.SIGINT)
        output, _ = following.communicate()
        assert (following.returncode, json.loads(output)["last"]) == (0, WAITS + 3)
        assert not answer(tmp_path, "archive", "check", str(place))["defects"]


class TestImported:
    """The same run in another home."""

    async def test_every_position_id_subject_and_byte_is_the_same(
        self, handle: RunHandle, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HINDCAST_HOME", str(tmp_path / "home"))
        done = await bring(folder)
        assert (done.events, done.blobs, done.missing_blobs) == (WAITS + 3, 2, 0)
        imported = open_run(RUN)
        assert imported.settings == handle.settings
        async with imported.connect_log() as there, handle.connect_log() as here:
            assert await stored_in(there) == await stored_in(here)
        assert imported.blobs.get(ArchiveSource(folder).started.base_policy) == b"base weights"
        with pytest.raises(SettingsError, match=r"there is a run 'tale' in .* already"):
            await bring(folder)

    async def test_interrupted_it_goes_on(
        self, handle: RunHandle, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HINDCAST_HOME", str(tmp_path / "home"))
        monkeypatch.setattr(
            importing, "split", lambda events: (events[at : at + 9] for at in range(0, len(events), 9))
        )
        appended = importing._append
        calls = 0

        async def dying(*arguments: Any) -> None:
            nonlocal calls
            calls += 1
            if calls == 3:
                raise KeyboardInterrupt
            await appended(*arguments)

        monkeypatch.setattr(importing, "_append", dying)
        with pytest.raises(KeyboardInterrupt):
            await bring(folder)
        assert not (tmp_path / "home" / "runs" / RUN / "settings.toml").exists(), "not a run yet"
        assert (await bring(folder)).events == WAITS + 3 - 18
        async with open_run(RUN).connect_log() as there, handle.connect_log() as here:
            assert await stored_in(there) == await stored_in(here)

    async def test_interrupted_at_its_very_end_it_is_done(
        self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The run has its settings, and only the note that it was being filled is left over."""
        monkeypatch.setenv("HINDCAST_HOME", str(tmp_path / "home"))
        written = importing.write_down

        def dying(run: RunHandle) -> None:
            written(run)
            raise KeyboardInterrupt

        monkeypatch.setattr(importing, "write_down", dying)
        with pytest.raises(KeyboardInterrupt):
            await bring(folder)
        assert (tmp_path / "home" / "runs" / RUN / IMPORTING).exists()
        async with open_run(RUN).connect_log() as log:
            assert await stored_in(log) == plain(all_of(folder))
        with pytest.raises(SettingsError, match="there is a run 'tale'"):
            await bring(folder)

    async def test_a_stream_that_nobody_knows_of_is_left_alone(
        self, folder: Path, handle: RunHandle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HINDCAST_HOME", str(tmp_path / "home"))
        await bring(folder)
        (tmp_path / "home" / "runs" / RUN / "settings.toml").unlink()
        with pytest.raises(ForeignLog, match="holds a log of a run 'tale' already"):
            await bring(folder)

    async def test_what_does_not_read_back_is_no_run(
        self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HINDCAST_HOME", str(tmp_path / "home"))
        original = importing._append

        async def bending(log: Any, events: list[Stored]) -> None:
            bent = Stored(events[0].position, events[0].subject, events[0].data, events[0].id + "x")
            await original(log, [bent, *events[1:]])

        monkeypatch.setattr(importing, "_append", bending)
        with pytest.raises(CorruptEvent, match="does not read back"):
            await bring(folder)
        assert not (tmp_path / "home" / "runs" / RUN / "settings.toml").exists()

    async def test_a_fork_brings_the_part_of_its_parent_that_it_needs(
        self, handle: RunHandle, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await fork_run(handle, at=20, name="branch", overrides=(), said=lambda _: None)
        place = tmp_path / "branch"
        written = await asyncio.to_thread(answer, handle.home, "archive", "branch", str(place))
        assert written["missing"] == []
        shown = answer(tmp_path, "archive", "show", str(place))
        assert shown["lineage"] == [{"run": RUN, "until": 20}]
        monkeypatch.setenv("HINDCAST_HOME", str(tmp_path / "bare"))
        assert (await bring(place)).ancestors == (RUN,)
        async with open_run("branch").connect_log() as there, ready(place) as here:
            assert await stored_in(there) == await stored_in(here)
        monkeypatch.setenv("HINDCAST_HOME", str(tmp_path / "beside"))
        await bring(folder)
        saved = next(ref for ref in named_in(folder) if open_run(RUN).blobs.get(ref) == b"a checkpoint")
        open_run(RUN).blobs.release(saved)
        assert (await bring(place)).ancestors == (), "the parent is there already"
        assert open_run("branch").blobs.get(saved) == b"a checkpoint", "though the parent has let go of it"
        async with open_run("branch").connect_log() as there:
            assert len(await stored_in(there)) == shown["last"]


class TestLasting:
    """`storage.archive`: the archiver of a run that goes on."""

    async def test_a_forks_own_part_is_archived_behind_its_parents_and_imported_beside_it(
        self, handle: RunHandle, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        archives = tmp_path / "archives"
        overrides = (f"storage.archive={archives}", "storage.segment_bytes=100")
        await fork_run(handle, at=20, name="lasting", overrides=overrides, said=lambda _: None)
        fork = open_run("lasting", home=handle.home)
        async with (
            asyncio.timeout(60),
            fork.connect_log("archiver") as log,
            Publisher(log, producer="archiver.1", code_rev="t", settings=QUICK) as publisher,
        ):
            archiving = asyncio.create_task(keep_archiving(fork, log, publisher))
            subject = "run.lasting.storage.archiver.>"
            while (told := await log.last_under(subject)) is None:  # noqa: ASYNC110 - told by the log
                await asyncio.sleep(0.05)
            archiving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await archiving
            before = await stored_in(log)
        recorded = decode(told)
        assert recorded is not None
        assert isinstance(recorded.fact, SegmentArchived)
        assert (recorded.fact.first, recorded.position) == (21, 22)
        own = archives / "lasting"
        manifest = load(own)
        assert (manifest.first, manifest.lineage) == (21, (Ancestor(run=RUN, until=20),))
        whole = tmp_path / "whole"
        await asyncio.to_thread(answer, handle.home, "archive", "lasting", str(whole))
        assert check_archive(own).digest == digest_at(whole, check_archive(own).last), "the run's own digest"
        monkeypatch.setenv("HINDCAST_HOME", str(tmp_path / "bare"))
        with pytest.raises(
            ForeignLog, match=r"is a fork of tale at position 20, and neither .* Import its archive first"
        ):
            await bring(own)
        await bring(folder)
        assert (await bring(own)).changed == {"storage.archive": '""'}
        async with open_run("lasting").connect_log() as there:
            assert await stored_in(there) == before[: check_archive(own).last]

    async def test_a_damaged_archive_holds_up_the_archiver_and_not_the_run(
        self, handle: RunHandle, tmp_path: Path
    ) -> None:
        overrides = (f"storage.archive={tmp_path}", "storage.segment_bytes=100")
        await fork_run(handle, at=20, name="held", overrides=overrides, said=lambda _: None)
        fork = open_run("held", home=handle.home)
        folder = tmp_path / "held"
        async with (
            asyncio.timeout(60),
            fork.connect_log("archiver") as log,
            Publisher(log, producer="archiver.1", code_rev="t", settings=QUICK) as publisher,
        ):
            archiving = asyncio.create_task(keep_archiving(fork, log, publisher))
            while not is_archive(folder) or not load(folder).segments:  # noqa: ASYNC110 - told by files
                await asyncio.sleep(0.05)
            archiving.cancel()
            await asyncio.gather(archiving, return_exceptions=True)
            path = segment_path(folder, 21)
            path.write_bytes(path.read_bytes()[:-1])
            with pytest.raises(ArchivingHeldUp, match="run held continues, but it is no longer archived"):
                await keep_archiving(fork, log, publisher)
        assert not issubclass(ArchivingHeldUp, BEYOND_RESTART)

    async def test_a_full_disk_of_the_archive_is_waited_for(
        self, handle: RunHandle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        overrides = (f"storage.archive={tmp_path}", "storage.segment_bytes=100")
        await fork_run(handle, at=20, name="full", overrides=overrides, said=lambda _: None)
        fork = open_run("full", home=handle.home)
        append, tries = ArchiveWriter.append, 0

        def full_at_first(self: ArchiveWriter, batch: Sequence[Stored]) -> None:
            nonlocal tries
            tries += 1
            if tries < 3:
                raise DiskFull("no space left on device")
            append(self, batch)

        monkeypatch.setattr(ArchiveWriter, "append", full_at_first)
        monkeypatch.setattr(lasting, "ROOM_S", 0.01)
        async with (
            asyncio.timeout(60),
            fork.connect_log("archiver") as log,
            Publisher(log, producer="archiver.1", code_rev="t", settings=QUICK) as publisher,
        ):
            going = asyncio.create_task(keep_archiving(fork, log, publisher))
            while await log.last_under("run.full.storage.archiver.>") is None:
                assert not going.done(), going
                await asyncio.sleep(0.05)
            going.cancel()
            await asyncio.gather(going, return_exceptions=True)
        assert tries > 2


def digest_at(folder: Path, position: int) -> str:
    """Rolling digest of a whole log, as an archive of it tells."""
    rolling = RollingDigest()
    for stored in all_of(folder)[:position]:
        rolling.advance(sha256(stored.data).digest())
    return rolling.value.hex()


async def bring(folder: Path) -> importing.ImportedRun:
    """What `hindcast import` does."""
    plan = plan_import(folder, on_event=lambda _: None)
    return await importing.carry_out(plan, on_event=lambda _: None, on_blob=lambda _: None)


def ready(folder: Path) -> Any:
    return ArchiveSource(folder).connect_log()
