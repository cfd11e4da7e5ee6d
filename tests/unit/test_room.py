"""Room: soft limits, a run that pauses and goes on, a broker that is renewed, words that are kept or lost."""

import io
import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from hindcast.actors.curriculum.leases import LeaseTimer
from hindcast.app.alerts.processes import ProcessAlerts
from hindcast.app.system.bus import ENOUGH_BYTES, LONGEST_PAUSE_S, BrokerDisk
from hindcast.app.system.free_room import disk_shortage, log_shortage
from hindcast.app.system.processes import ProcessState, list_processes
from hindcast.app.system.supervisor import Supervisor
from hindcast.app.system.system import keep_output
from hindcast.events.catalogue import ControlRequested, EpisodeStarted, RunResumed
from stories.curriculum_story import Story, settings_of

FULL = "[7] 2026/11/21 [ERR] JetStream failed to store a msg on stream '$G > RUN_r': write 1.blk: no space left on device"
PAUSE = ControlRequested(command="pause", arguments={}, author="curriculum", reason="full")
RESUME = ControlRequested(command="resume", arguments={}, author="curriculum", reason="room")


def test_the_log_runs_short_at_nine_tenths_of_its_limit() -> None:
    assert log_shortage(899, 1000) == ""
    assert "log.max_bytes" in log_shortage(900, 1000)


def test_a_disk_runs_short_below_the_limit_and_has_room_only_well_above_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free_mib = 110

    def usage(_folder: Path) -> SimpleNamespace:
        return SimpleNamespace(free=free_mib << 20)

    monkeypatch.setattr("hindcast.app.system.free_room.shutil.disk_usage", usage)
    assert disk_shortage([tmp_path], 100, halted=False) == ""
    assert "110 MiB free, less than 125" in disk_shortage([tmp_path], 100, halted=True)
    free_mib = 99
    assert str(tmp_path) in disk_shortage([tmp_path], 100, halted=False)
    assert disk_shortage([tmp_path / "not yet made"], 100, halted=False) == ""
    free_mib = 126
    assert disk_shortage([tmp_path], 100, halted=True) == ""


def test_a_paused_run_requests_nothing_and_no_waiting_request_runs_out_of_time() -> None:
    story = Story(settings_of(curriculum={"lease_s": 30.0}))
    first, second = story.request()[:2]
    story.tell(EpisodeStarted(episode=first.episode, actor="actor.1", instruction="", renderer=""))
    story.tell(PAUSE)
    assert story.wanted() == []
    timer = LeaseTimer()

    def late(now_s: float) -> set[str]:
        return {lease.episode for lease in timer.expired(story.state.leases, now_s=now_s)}

    assert late(0) == set()
    assert late(31) == {first.episode}
    story.tell(RESUME)
    assert second.episode not in late(31)
    assert second.episode in late(62)


def test_a_pause_outlasts_a_restart_of_the_system_and_ends_with_its_authors_word_alone() -> None:
    story = Story(settings_of())
    story.tell(PAUSE)
    assert story.buffer.fingerprint is not None
    story.tell(RunResumed(after_position=1, fingerprint=story.buffer.fingerprint, until={}))
    story.tell(ControlRequested(command="resume", arguments={}, author="somebody", reason=""))
    assert story.wanted() == []
    story.tell(RESUME)
    assert story.wanted()


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.free = 0
        self.said: list[str] = []
        self.disk = BrokerDisk(
            Path("/store"),
            say=lambda state, detail: self.said.append(f"{state}: {detail}"),
            clock=lambda: self.now,
            free=lambda _: self.free,
        )

    def renewed(self, *, for_s: float) -> bool:
        until = self.now + for_s
        while self.now < until:
            self.now += 0.25
            if self.disk.wants_renewal():
                return True
        return False


def test_a_broker_that_could_not_write_is_renewed_once_there_is_room_and_people_are_told() -> None:
    clock = Clock()
    clock.disk.heard("[7] [INF] Server is ready")
    clock.disk.heard("[7] [INF] a page about no space left on device")
    assert not clock.renewed(for_s=5)
    clock.disk.heard(FULL)
    clock.disk.heard(FULL)
    clock.free = ENOUGH_BYTES - 1
    assert not clock.renewed(for_s=100)
    assert len(clock.said) == 2, "told at once and reminded after a minute"
    assert clock.said[0].startswith("paused: the broker cannot write to /store")
    clock.free = ENOUGH_BYTES
    assert clock.renewed(for_s=2)
    assert not clock.renewed(for_s=100), "once"


def test_where_renewing_does_not_help_it_is_done_less_and_less_often() -> None:
    clock = Clock()
    clock.free = 1 << 40
    waits = []
    for _ in range(12):
        clock.disk.heard(FULL)
        began = clock.now
        assert clock.renewed(for_s=2 * LONGEST_PAUSE_S)
        waits.append(clock.now - began)
    assert waits == sorted(waits)
    assert waits[0] < 1
    assert LONGEST_PAUSE_S <= waits[-1] < LONGEST_PAUSE_S + 1


def test_a_supervisor_passes_on_what_its_worker_says_and_renews_it_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Watch:
        def __init__(self) -> None:
            self.heard_lines: list[str] = []
            self.renewals = 0

        def heard(self, line: str) -> None:
            self.heard_lines.append(line.strip())

        def wants_renewal(self) -> bool:
            if self.renewals == 0 and "worker 0" in self.heard_lines:
                self.renewals = 1
                return True
            if "worker 1" in self.heard_lines:
                supervisor._stop(signal.SIGTERM, None)
            return False

    code = (
        "import os, sys, time; sys.stderr.write('worker ' + os.environ['HINDCAST_RESTARTS'] + '\\n'); "
        "sys.stderr.flush(); time.sleep(60)"
    )
    kept = io.BytesIO()
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(kept))
    supervisor = Supervisor("bus.1", lambda: (sys.executable, "-c", code), folder=tmp_path, watch=Watch())
    assert supervisor.run() == 0
    assert supervisor.restarts == 1
    assert kept.getvalue() == b"worker 0\nworker 1\n"
    (entry,) = list_processes(tmp_path)
    assert entry.state == "stopped"


def test_people_hear_of_restarts_and_pauses_once() -> None:
    def entry(state: str, restarts: int = 0, detail: str = "") -> ProcessState:
        return ProcessState(name="bus.1", pid=1, state=state, restarts=restarts, detail=detail)

    alerts = ProcessAlerts(Path("/home"))
    assert alerts.look([entry("ready", 3)]) == [], "what was before is no news"
    assert alerts.look([entry("paused", 3, "no room")]) == ["bus.1 waits: no room"]
    assert alerts.look([entry("paused", 3, "no room")]) == []
    assert alerts.look([entry("ready", 4)]) == ["bus.1 works again"]
    assert alerts.look([entry("restarting", 5, "exit status 1")]) == [
        "bus.1 is started again (time 5): exit status 1"
    ]
    assert alerts.look([entry("ready", 5)]) == []


def test_people_hear_once_that_a_disk_is_full_and_once_that_it_is_not() -> None:
    free = [ENOUGH_BYTES, ENOUGH_BYTES - 1, 0, ENOUGH_BYTES]
    alerts = ProcessAlerts(Path("/home"), free=lambda _: free.pop(0))
    assert [bool(alerts.look_at_disk()) for _ in range(4)] == [False, True, False, True]


def test_output_that_finds_no_room_is_lost_and_stops_nobody(tmp_path: Path) -> None:
    place = tmp_path / "folder" / "words.log"
    reading, writing = os.pipe()
    thread = keep_output(os.fdopen(reading, "rb"), place)
    with os.fdopen(writing, "wb", buffering=0) as stream:
        stream.write(b"one\ntwo\n")
        time.sleep(0.3)  # both have been tried by then
        place.parent.mkdir()
        stream.write(b"three\n")
    thread.join(10)
    assert place.read_text() == "(2 lines lost: there was no room)\nthree\n"
