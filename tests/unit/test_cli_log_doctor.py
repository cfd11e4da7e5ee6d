"""`log stats`, `grep`, `tail` by producer, and what the doctor finds."""

import asyncio
import importlib.metadata
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

import hindcast.app.system.doctor as doctor
from hindcast.app.cli import app
from hindcast.app.cli.events import Chains, fields_of, select
from hindcast.app.runs.open_log import parse_size, resize_log
from hindcast.app.runs.runs import RunHandle, open_run
from hindcast.core.errors import SettingsError
from hindcast.core.models.folder_check import CheckFinding
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import StepTaken
from hindcast.events.jetstream.api import ApiError
from stories.recorded_home import make_home
from stories.synthetic_run import a_run, recorded_run

ROOT = Path(__file__).parents[2]
FACTS = a_run(1, groups=4)


@pytest.fixture(scope="module")
def handle(tmp_path_factory: pytest.TempPathFactory) -> RunHandle:
    return asyncio.run(make_home(tmp_path_factory.mktemp("doctor") / "home", FACTS))


def lines(handle: RunHandle, *arguments: str) -> list[Any]:
    result = CliRunner().invoke(app, [*arguments, "--json"], env={"HINDCAST_HOME": str(handle.home)})
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_stats_tell_rates_and_every_producers_chain(handle: RunHandle) -> None:
    stats, end = lines(handle, "log", "stats")
    assert sum(chain["events"] for chain in stats["chains"].values()) == stats["events"] == end["cursor"]
    assert {chain["broken"] for chain in stats["chains"].values()} == {None}
    assert stats["chains"]["learner.1"]["incarnations"] == 1
    minutes = (stats["ended_ns"] - stats["began_ns"]) / 60e9
    assert stats["per_minute_by_type"]["step.taken"] == pytest.approx(
        stats["by_type"]["step.taken"] / minutes
    )


def test_the_tail_can_be_of_one_producer(handle: RunHandle) -> None:
    *events, end = lines(handle, "log", "tail", "--producer", "actor.*", "--from", "0", "-n", "9999")
    assert {event["producer"] for event in events} == {"actor.1", "actor.2"}
    assert end == {"cursor": len(FACTS)}


async def limit_of(handle: RunHandle) -> int:
    async with handle.connect_log() as log:
        return (await log.fill()).limit_bytes


def test_a_log_is_given_more_room_at_once_and_for_later_starts(handle: RunHandle) -> None:
    (said,) = lines(handle, "log", "resize", "16GiB")
    assert said == {"run": handle.name, "max_bytes": 16 << 30}
    assert open_run(handle.name, home=handle.home).settings.log.max_bytes == 16 << 30
    assert asyncio.run(limit_of(handle)) == 16 << 30


def test_a_limit_that_the_broker_refuses_is_not_written_down(handle: RunHandle) -> None:
    place = handle.folder / "settings.toml"
    before = place.read_text()
    with pytest.raises(
        ApiError, match=r"refused STREAM\.UPDATE.*Lower log\.max_bytes, or raise max_file_store"
    ):
        asyncio.run(resize_log(handle, 1 << 62))
    assert place.read_text() == before


def test_a_log_is_never_given_less_than_it_holds(handle: RunHandle) -> None:
    with pytest.raises(SettingsError, match=r"holds .* bytes already"):
        asyncio.run(resize_log(handle, 1000))
    with pytest.raises(SettingsError, match="is no size"):
        parse_size("lots")


def test_grep_names_the_fields_that_match(handle: RunHandle) -> None:
    *events, _ = lines(handle, "log", "grep", r"^payload\.result=parse")
    expected = [
        at for at, told in enumerate(FACTS, 1) if getattr(told.fact, "result", None) == "parse_failure"
    ]
    assert [event["position"] for event in events] == expected != []
    assert {tuple(event["matched"]) for event in events} == {("payload.result=parse_failure",)}


async def test_a_broken_chain_is_told_once_and_reading_goes_on() -> None:
    _, recordeds = await recorded_run(1)
    actors = [at for at, one in enumerate(recordeds) if one.envelope.producer == "actor.1"]
    missing = actors[3]
    chains = Chains(after=0)
    for recorded in [*recordeds[:missing], *recordeds[missing + 1 :]]:
        chains.check(recorded)
    broken = {name: chain.broken for name, chain in chains.producers.items() if chain.broken}
    assert list(broken) == ["actor.1"]
    assert f"position {recordeds[actors[4]].position}" in str(broken["actor.1"])
    assert chains.producers["actor.1"].events == len(actors) - 1


async def test_every_value_of_an_event_has_a_path() -> None:
    _, recordeds = await recorded_run(1)
    step = next(one for one in recordeds if isinstance(one.fact, StepTaken) and one.fact.action)
    found = list(fields_of(step))
    assert isinstance(step.fact, StepTaken)
    assert step.fact.action is not None
    assert f"payload.action.name={step.fact.action.name}" in found
    assert f"position={step.position}" in found
    assert select(None, None, "actor.*").takes(step)
    assert not select(None, None, "judge.*").takes(step)


# --- doctor


async def found(part: str, home: Path, **sections: Any) -> CheckFinding:
    wanted = {name: (look, fix) for name, look, fix in doctor.parts(home, Settings(**sections))}
    look, fix = wanted[part]
    return await doctor.examine(part, look, fix)


async def test_the_doctor_really_appends_to_a_broker_and_looks_at_the_log(handle: RunHandle) -> None:
    broker, log = await found("broker", handle.home), await found("log", handle.home)
    assert (broker.verdict, log.verdict) == ("ok", "ok")
    assert "durable appends/s" in broker.result
    assert f"{len(FACTS)} events" in log.result
    assert (await found("log", handle.home / "nowhere")).result == "no run yet"


async def test_what_is_wrong_has_a_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "FREE_MIB", 2**40)
    monkeypatch.setattr(doctor, "MEMORY_MIB", 2**40)
    disk, memory = await found("disk", tmp_path), await found("memory", tmp_path)
    assert (disk.verdict, memory.verdict) == ("failed", "note")
    browser = await found("browser", tmp_path, actors={"browser_path": "/nowhere/chromium"})
    assert (browser.verdict, "/nowhere/chromium" in browser.result) == ("failed", True)
    policy = await found("policy", tmp_path, policy={"base": str(tmp_path / "no-model")})
    assert policy.verdict == "failed"
    assert all(finding.fix for finding in (disk, memory, browser, policy))


async def test_a_fixed_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        finding = await found("ports", tmp_path, log={"port": port})
    assert finding.verdict == "failed"
    assert f"port {port} (log.port)" in finding.result
    assert (await found("ports", tmp_path)).verdict == "ok"


async def test_versions_are_held_against_what_is_wanted_and_what_was_tested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.0" if name == "rich" else real(name))
    finding = await found("packages", tmp_path)
    assert finding.verdict == "failed"
    assert "rich is 1.0, wanted >=14" in finding.result
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "99" if name == "rich" else real(name))
    finding = await found("packages", tmp_path)
    assert finding.verdict == "note"
    assert "rich 99 (tested" in finding.result


async def test_a_clock_behind_the_newest_event_is_noted(
    handle: RunHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await found("clock", handle.home)).verdict == "ok"
    monkeypatch.setattr(doctor, "CLOCK_S", -1e9)
    finding = await found("clock", handle.home)
    assert finding.verdict == "note"
    assert "before the newest event of run tale" in finding.result


@pytest.mark.slow
def test_the_doctor_uses_every_part_and_leaves_nothing_behind(handle: RunHandle) -> None:
    before = sorted(path.name for path in handle.home.iterdir())
    done = subprocess.run(
        [sys.executable, "-c", "from hindcast.app.cli import main; main()", "doctor", "--json"],
        cwd=ROOT,
        env={**os.environ, "HINDCAST_HOME": str(handle.home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    findings = json.loads(done.stdout)
    named = [name for name, _, _ in doctor.parts(handle.home, Settings())]
    assert [finding["part"] for finding in findings][: len(named) + 1] == [*named, "gpu"]
    assert "failed" not in {finding["verdict"] for finding in findings}, findings
    browser = next(finding for finding in findings if finding["part"] == "browser")
    assert "started in" in browser["result"]
    assert sorted(path.name for path in handle.home.iterdir()) == before
    assert msgspec.convert(findings, list[CheckFinding])
