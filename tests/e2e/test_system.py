"""The product as its users meet it: started, stopped, resumed, verified, rebuilt, tampered with."""

import asyncio
import json
import os
import shutil
import signal
import stat
import subprocess
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from hindcast.app.runs.runs import open_run
from hindcast.app.system.home import is_named_by_us
from hindcast.events.catalogue import (
    EpisodeAbandoned,
    EpisodeCancelled,
    EpisodeEnded,
    EpisodeRequested,
    StepTaken,
    UpdateApplied,
)
from hindcast.events.envelope import Record, Recorded, Stored
from hindcast.events.log.reader import read
from processes.run_witness import Witness
from processes.system import Home, settings

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.broker, pytest.mark.browser]


class Left(NamedTuple):
    """What was there while a system ran in a home and after Ctrl-C."""

    second: "subprocess.CompletedProcess[str]"
    """`hindcast start` beside it."""
    status: int
    workers: list[str]
    """Of those that were looked at, the ones that still lived."""
    processes: str
    """Ids of those whose command line names the home."""


class Spine(NamedTuple):
    """A run stopped by Ctrl-C in the middle of its learning, and gone on with to a goal."""

    home: Home
    left: Left
    goal: int


@pytest.fixture(scope="module")
def spine(tmp_path_factory: pytest.TempPathFactory) -> Spine:
    home = Home(tmp_path_factory.mktemp("home"))
    process = home.start("--run", "spine", *settings())
    try:
        with Witness(home.folder, "spine") as witness:
            home.wait_for("three updates", lambda: witness.count("update.applied") >= 3, timeout_s=400)
        second = home.run("start", "--run", "spine")
        pids = {name: home.pid(name) for name in ("bus.1", "actor.1", "learner.1")}
    finally:
        status = home.stop(process, signal.SIGINT)
    workers = [name for name, pid in pids.items() if Path(f"/proc/{pid}").exists()]
    found = subprocess.run(["pgrep", "-f", str(home.folder)], capture_output=True, text=True, check=False)
    before = asyncio.run(recordeds(home))
    goal = updates(home) + 3
    summary = home.json("start", "--run", "spine", "--until", f"updates={goal}", timeout_s=400)
    assert summary["updates"] == goal, "a finite start ends by itself, and says what the run came to"
    assert set(summary) == {"run", "updates", "episodes", "demonstrations", "events", "wall_s"}
    assert summary["events"] > len(before)
    return Spine(home, Left(second, status, workers, found.stdout), goal)


@pytest.fixture(scope="module")
def home(spine: Spine) -> Home:
    return spine.home


async def recordeds(home: Home) -> list[Recorded]:
    async with open_run("spine", home=home.folder).connect_log() as log:
        return [recorded async for recorded in read(log)]


def updates(home: Home) -> int:
    return sum(isinstance(recorded.fact, UpdateApplied) for recorded in asyncio.run(recordeds(home)))


def test_every_requested_episode_reaches_exactly_one_end(home: Home) -> None:
    facts = [recorded.fact for recorded in asyncio.run(recordeds(home))]
    requested = {fact.episode for fact in facts if isinstance(fact, EpisodeRequested)}
    ends = Counter(
        fact.episode for fact in facts if isinstance(fact, EpisodeEnded | EpisodeAbandoned | EpisodeCancelled)
    )
    assert requested
    assert set(ends) == requested
    assert set(ends.values()) == {1}


def test_a_run_with_a_restart_in_the_middle_verifies_bit_for_bit(spine: Spine) -> None:
    report = spine.home.json("verify", "spine", timeout_s=300)
    assert report["identical"]
    assert report["first_divergence"] is None
    assert report["updates"] == spine.goal
    assert report["weights"] >= 3


def test_the_read_model_folds_again_to_the_same_bytes(home: Home) -> None:
    report = home.json("rebuild", "spine")
    assert report["identical"]
    assert report["events"] > 100
    assert report["events_per_s"] > 0


def test_success_stands_with_its_interval_per_policy_version(home: Home) -> None:
    shown = json.dumps(home.json("run", "show", "spine"))
    assert all(word in shown for word in ('"rate"', '"low"', '"high"'))


def test_steps_were_sampled_from_adopted_versions_alone(home: Home) -> None:
    policies = home.json("policy", "list", "--run", "spine")
    assert len(policies["policies"] if isinstance(policies, dict) else policies) >= 3


def test_a_byte_altered_in_a_stored_batch_is_named_by_its_position(home: Home, tmp_path: Path) -> None:
    original = asyncio.run(recordeds(home))
    other = Home(tmp_path / "tampered")
    position = asyncio.run(_copy_with_one_byte_changed(home, other, original))
    report = home_report(other)
    assert report["first_divergence"]["position"] == position
    assert not report["identical"]


def home_report(home: Home) -> dict:
    return home.json("verify", "spine", timeout_s=300, status=3)


async def _copy_with_one_byte_changed(home: Home, other: Home, original: list[Recorded]) -> int:
    """Append the run's own bytes to a new broker's stream, all but one byte of a trained step's prompt."""
    shutil.copytree(home.folder / "runs", other.folder / "runs")
    planned = next(recorded.fact for recorded in original if recorded.envelope.type == "batch.planned")
    position = int.from_bytes(planned.positions[:8], "little")
    step = original[position - 1].fact
    assert isinstance(step, StepTaken)
    async with open_run("spine", home=home.folder).connect_log() as log:
        stored = [event async for batch in _pages(log) for event in batch]
    async with open_run("spine", home=other.folder).connect_log(role="admin"):
        pass
    by_role = {
        "request": "curriculum",
        "curriculum": "curriculum",
        "learner": "learner",
        "storage": "learner",
    }
    by_role |= {"verdict": "judge", "run": "admin", "control": "control", "evaluation": "curriculum"}
    logs: dict[str, list[Stored]] = {}
    async with _all_roles(other) as appenders:
        for event in stored:
            family = event.subject.split(".")[2]
            role = by_role.get(family, "actor")
            data = event.data
            if event.position == position:
                at = data.index(step.prompt_ids) + 4
                data = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
            (given,) = await appenders[role].append([Record(subject=event.subject, data=data, id=event.id)])
            assert given == event.position
            logs.setdefault(role, []).append(event)
    return position


async def _pages(log):  # type: ignore[no-untyped-def]
    after = 0
    while batch := await log.read(after=after, limit=500):
        yield batch
        after = batch[-1].position


class _all_roles:
    """The log as every role sees it, for appending other people's bytes."""

    def __init__(self, home: Home) -> None:
        self._run = open_run("spine", home=home.folder)

    async def __aenter__(self) -> dict:
        from contextlib import AsyncExitStack

        self._stack = AsyncExitStack()
        roles = ("admin", "curriculum", "actor", "judge", "learner", "control")
        return {
            role: await self._stack.enter_async_context(self._run.connect_log(role=role)) for role in roles
        }

    async def __aexit__(self, *raised: object) -> None:
        await self._stack.aclose()


def test_a_second_system_in_a_home_is_refused_and_ctrl_c_stops_the_first_and_leaves_nothing_running(
    spine: Spine,
) -> None:
    left = spine.left
    assert left.second.returncode == 1
    assert "another system runs in" in left.second.stderr
    assert left.status == 0
    assert left.workers == []
    assert left.processes == ""


def test_nothing_in_the_home_can_be_read_by_others(home: Home) -> None:
    """Of SQLite, nats-server and our own, while it ran and after commands."""
    places = (home.folder, *home.folder.rglob("*"))
    wrong = {
        str(place): oct(place.lstat().st_mode)
        for place in places
        if not place.is_symlink()
        and stat.S_IMODE(place.lstat().st_mode) != (0o700 if place.is_dir() else 0o600)
    }
    assert wrong == {}
    assert any(place.suffix == ".blk" for place in places), "the broker's store is among them"
    assert all(map(is_named_by_us, os.listdir(home.folder)))


def test_settings_given_for_a_run_that_exists_are_refused(home: Home) -> None:
    done = home.run("start", "--run", "spine", "--set", "learner.learning_rate=1e-3", "--until", "updates=1")
    assert done.returncode == 2
    assert "settings are fixed in its first event" in done.stderr


def test_settings_edited_behind_the_logs_back_are_refused(home: Home) -> None:
    file = home.folder / "runs" / "spine" / "settings.toml"
    before = file.read_text()
    file.write_text(before.replace("group_batch = 2", "group_batch = 3"))
    try:
        done = home.run("start", "--run", "spine", "--until", "updates=9", timeout_s=200)
    finally:
        file.write_text(before)
    assert done.returncode == 1
    assert "learner.options.group_batch was 2, is 3" in done.stderr


def test_the_broker_is_named_when_its_port_is_taken(tmp_path: Path) -> None:
    import socket

    home = Home(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = home.run("start", "--until", "updates=1", "--set", f"log.port={port}", timeout_s=100)
    assert done.returncode == 1
    assert f"port {port}" in done.stderr


def test_an_actor_without_a_browser_says_so_and_the_system_stops(tmp_path: Path) -> None:
    home = Home(tmp_path)
    done = home.run(
        "start",
        "--until",
        "updates=1",
        *settings({"actors.browser_path": '"/nowhere/chromium"'}),
        timeout_s=300,
    )
    assert done.returncode == 1
    assert "/nowhere/chromium" in done.stderr


def test_bytes_of_events_are_those_any_msgpack_reader_decodes(home: Home) -> None:
    import msgpack

    async def first() -> list[Stored]:
        async with open_run("spine", home=home.folder).connect_log() as log:
            return await log.read(after=0, limit=50)

    for stored in asyncio.run(first()):
        plain = msgpack.unpackb(stored.data)
        assert plain["run"] == "spine"
        assert plain["payload"] is not None
        assert msgspec.msgpack.decode(stored.data)["id"] == plain["id"]
