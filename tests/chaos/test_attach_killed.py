"""Attached consumers as processes on a real broker: killed with signal 9, crashing, stuck, and nobody else minds."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from hindcast.app.attach.attachment import store_url
from hindcast.app.attach.consumers import ConsumerRow, list_consumers
from hindcast.app.attach.store import ConsumerStore
from hindcast.app.runs.runs import RunHandle
from hindcast.app.system.broker import ensure_broker
from hindcast.core.errors import BrokerDenied
from hindcast.events.envelope import Record
from stories.recorded_home import make_home
from stories.synthetic_run import a_run

pytestmark = pytest.mark.broker

ROOT = Path(__file__).parents[2]
WAIT_S = 120.0
FACTS = a_run(1, groups=40)


@pytest.fixture(scope="module")
def handle(tmp_path_factory: pytest.TempPathFactory) -> RunHandle:
    return asyncio.run(make_home(tmp_path_factory.mktemp("attach") / "home", FACTS))


def start(handle: RunHandle, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
    """`hindcast attach`, in the folder of the tests' consumers."""
    return subprocess.Popen(
        [sys.executable, "-c", "from hindcast.app.cli import main; main()", "attach", *arguments],
        cwd=ROOT / "tests",
        env={
            **os.environ,
            "HINDCAST_HOME": str(handle.home),
            "PYTHONPATH": str(ROOT),
            **environment,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    out, err = process.communicate(timeout=WAIT_S)
    return process.returncode, out, err


def ledger(handle: RunHandle, name: str) -> list[int]:
    store = ConsumerStore(store_url(handle, name))
    try:
        with store.writing() as db:
            return list(db.scalars(text("SELECT position FROM ledger ORDER BY rowid")))
    finally:
        store.close()


def position(handle: RunHandle, name: str) -> int:
    store = ConsumerStore(store_url(handle, name))
    try:
        return next((one.position for one in store.standings(handle.name)), 0)
    finally:
        store.close()


async def wait_for(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - other processes' files
            await asyncio.sleep(0.02)


async def row(handle: RunHandle, name: str) -> ConsumerRow:
    return next(one for one in await list_consumers(handle) if one.name == name)


async def test_killed_again_and_again_it_neither_skips_nor_doubles_an_event(handle: RunHandle) -> None:
    arguments = ("attached_consumers:slow", "--name", "killed")
    stops = []
    async with ensure_broker(handle.home):
        for _ in range(3):
            before = position(handle, "killed") if stops else 0
            process = start(handle, *arguments, SLOW_S="0.2")
            await wait_for(
                lambda b=before: (path_of(handle, "killed")).exists() and position(handle, "killed") > b
            )
            process.kill()
            process.communicate()
            stops.append(position(handle, "killed"))
            assert (await row(handle, "killed")).state == "failed"
        code, out, _ = end(start(handle, *arguments, "--until", "end", "--json", SLOW_S="0"))
    assert code == 0
    assert sorted(set(stops)) == stops
    assert stops[-1] < len(FACTS), "it was never killed in the midst of the log"
    report = json.loads(out.splitlines()[-1])
    assert (report["resumed"], report["position"]) == (True, len(FACTS))
    assert report["taken"] == len(FACTS) - stops[-1]
    assert ledger(handle, "killed") == list(range(1, len(FACTS) + 1))


def path_of(handle: RunHandle, name: str) -> Path:
    found = ConsumerStore(store_url(handle, name)).file
    assert found is not None
    return found


async def test_a_crash_names_the_event_and_the_list_keeps_the_error(handle: RunHandle) -> None:
    process = start(handle, "attached_consumers:poisoned", "--retries", "1", POISON="40")
    code, _, err = end(process)
    assert code == 1
    assert "position 40" in err
    assert "no such product" in err
    assert "attached_consumers.py" in err, "where in the consumer it happened is shown"
    listed = await row(handle, "attached_consumers")
    assert (listed.state, listed.position, listed.lag_events) == ("failed", 39, len(FACTS) - 39)
    assert listed.lag_s is not None
    assert "position 40" in listed.detail


async def test_poison_can_be_set_aside_and_is_counted_locally(handle: RunHandle) -> None:
    arguments = ("attached_consumers:poisoned", "--name", "aside", "--set-aside", "--retries", "0")
    code, out, _ = end(start(handle, *arguments, "--until", "60", "--json", POISON="40"))
    assert code == 0
    aside = json.loads(out.splitlines()[-1])["dead_letters"]
    assert aside >= 1
    assert (await row(handle, "aside")).dead_letters == aside
    assert len(ledger(handle, "aside")) == 60 - aside


async def test_a_stuck_consumer_is_shown_leaves_when_asked_and_undoes_what_it_began(
    handle: RunHandle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = tmp_path / "note"
    monkeypatch.setattr("hindcast.app.attach.consumers.STALLED_S", 1.0)
    process = start(handle, "attached_consumers:stuck", "--name", "stuck", POISON="5", NOTE=str(note))
    try:
        await wait_for(note.exists)
        listed = await row(handle, "stuck")
        until = time.monotonic() + WAIT_S
        while listed.state != "stalled" and time.monotonic() < until:
            await asyncio.sleep(0.2)
            listed = await row(handle, "stuck")
        assert (listed.state, listed.detail.partition(" for")[0]) == ("stalled", "at position 5")
        second = end(start(handle, "attached_consumers:stuck", "--name", "stuck"))
        assert second[0] == 1
        assert "attached already" in second[2]
        process.send_signal(signal.SIGINT)
        code, _, err = end(process)
    finally:
        process.kill()
    assert code == 1
    assert "did not return from the event after position" in err
    assert ledger(handle, "stuck") == list(range(1, position(handle, "stuck") + 1))
    assert position(handle, "stuck") < 5


@pytest.mark.parametrize("place", ["", "def prepare(db): "], ids=["module", "prepare"])
async def test_one_that_never_begins_leaves_when_asked(handle: RunHandle, tmp_path: Path, place: str) -> None:
    note = tmp_path / "note"
    (tmp_path / "endless.py").write_text(
        f"import pathlib, time\n{place}pathlib.Path({str(note)!r}).touch(); time.sleep(3600)\n"
        "def consumer(event, db): pass\n"
    )
    process = start(handle, "endless:consumer", "--name", "endless", PYTHONPATH=f"{ROOT}:{tmp_path}")
    try:
        await wait_for(note.exists)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=WAIT_S)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 1
    assert "endless was stopped before it had begun" in err
    assert (await row(handle, "endless")).state == "stopped"


async def test_ctrl_c_detaches_and_live_begins_at_the_end(handle: RunHandle) -> None:
    process = start(handle, "attached_consumers:ledger", "--name", "live", "--from", "live")
    await wait_for(lambda: path_of(handle, "live").exists() and position(handle, "live") == len(FACTS))
    process.send_signal(signal.SIGTERM)
    code, out, _ = end(process)
    assert code == 0
    assert out == f"detached at position {len(FACTS)} after 0 events\n"
    assert (await row(handle, "live")).state == "stopped"


async def test_the_reader_may_not_publish(handle: RunHandle) -> None:
    async with handle.connect_log("reader") as log:
        record = Record(subject=f"run.{handle.name}.curriculum.forged-1", data=b"forged", id="forged")
        with pytest.raises(BrokerDenied, match="'reader'"):
            await log.append([record])


def json_of(handle: RunHandle, *arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", "from hindcast.app.cli import main; main()", *arguments, "--json"],
        cwd=ROOT,
        env={**os.environ, "HINDCAST_HOME": str(handle.home)},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=True,
    )
    return json.loads(done.stdout)


def test_a_consumer_is_shown_and_forgotten(handle: RunHandle) -> None:
    code, _, _ = end(start(handle, "attached_consumers:Types", "--name", "types", "--until", "50"))
    assert code == 0
    shown = json_of(handle, "consumer", "show", "types")
    assert (shown["position"], sum(shown["state"].values())) == (50, 50)
    assert json_of(handle, "consumer", "forget", "types")["forgotten"] == "types"
    assert not path_of(handle, "types").exists()
    assert "types" not in {one["name"] for one in json_of(handle, "consumer", "list")["consumers"]}
