"""The supervisor keeps its worker alive, and the goals and settings of a start say what they mean."""

import asyncio
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from hindcast.app.alerts.processes import ProcessAlerts
from hindcast.app.revision import is_code_newer_than
from hindcast.app.settings.configuration import resolve
from hindcast.app.system import worker
from hindcast.app.system.launch import Launch, parse_until, require_reachable
from hindcast.app.system.processes import FAILURE, ProcessState, list_processes, pid_alive, read_json, report
from hindcast.app.system.supervisor import HOPELESS, STARTER, STOPPED, Supervisor
from hindcast.app.system.system import System, absolute_python_path, wait_until_ready
from hindcast.core.errors import BrokerUnreachable, SettingsError, UnknownVersion
from hindcast.core.settings.operation import is_operational

WAIT_S = 20.0


def supervised(folder: Path, code: str) -> Supervisor:
    return Supervisor("worker.1", lambda: (sys.executable, "-c", code), folder=folder)


def stop_when(supervisor: Supervisor, condition: threading.Event) -> threading.Thread:
    def wait() -> None:
        condition.wait(WAIT_S)
        supervisor._stop(signal.SIGTERM, None)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_a_worker_that_crashes_is_started_again_and_a_stop_ends_it(tmp_path: Path) -> None:
    started: list[int] = []
    twice = threading.Event()

    def on_started(pid: int) -> int:
        started.append(pid)
        if len(started) == 3:
            twice.set()
        else:
            os.kill(pid, signal.SIGKILL)
        return 0

    supervisor = supervised(tmp_path, "import time; time.sleep(60)")
    thread = stop_when(supervisor, twice)
    assert supervisor.run(on_started=on_started) == 0
    thread.join()
    assert len(set(started)) == 3
    assert supervisor.restarts == 2
    assert not any(pid_alive(pid) for pid in started)
    (entry,) = list_processes(tmp_path)
    assert entry.state == "stopped"


@pytest.mark.parametrize(
    ("raised", "reason"),
    [
        ("{}['missing']", "KeyError: 'missing' ({script}:6); the traceback is in honcho.log"),
        ("raise BlobMissing('no blob\\n3f')", "BlobMissing: no blob 3f"),
    ],
    ids=["unexpected", "known"],
)
def test_people_read_what_a_worker_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: str, reason: str
) -> None:
    monkeypatch.setenv("HINDCAST_HOME", str(tmp_path))
    script = tmp_path / "crashing.py"
    script.write_text(
        "import sys\nfrom hindcast.app.system.worker import explain\nfrom hindcast.core.errors import BlobMissing\n\n"
        f"try:\n    {raised}\nexcept Exception as error:\n    sys.exit(explain(error, 'worker.1'))\n"
    )
    folder, again = tmp_path / "processes", threading.Event()
    supervisor = Supervisor("worker.1", lambda: (sys.executable, str(script)), folder=folder)
    seen: list[ProcessState] = []

    def on_started(pid: int) -> int:
        seen.extend(list_processes(folder))
        if len(seen) == 2:
            again.set()
        return 0

    thread = stop_when(supervisor, again)
    assert supervisor.run(on_started=on_started) == 0
    thread.join()
    assert [one.state for one in seen] == ["starting", "starting"]
    reason = reason.replace("{script}", str(script))
    assert [one.detail for one in seen] == ["", reason]
    alerts = ProcessAlerts(tmp_path)
    assert [alerts.look([one]) for one in seen] == [[], [f"worker.1 is started again (time 1): {reason}"]]


def test_what_a_crashed_worker_left_running_is_killed_with_its_session(tmp_path: Path) -> None:
    leave_a_child = (
        "import subprocess, sys, os, pathlib;"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
        f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(child.pid)); os._exit({HOPELESS})"
    )
    assert supervised(tmp_path / "p", leave_a_child).run() == HOPELESS
    pid = int((tmp_path / "pid").read_text())
    until = time.monotonic() + WAIT_S
    while pid_alive(pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert not pid_alive(pid)


def test_an_error_that_no_restart_can_help_ends_the_supervisor(tmp_path: Path) -> None:
    supervisor = supervised(tmp_path, f"raise SystemExit({HOPELESS})")
    assert supervisor.run() == HOPELESS
    assert supervisor.restarts == 0


@pytest.mark.parametrize("status", [0, HOPELESS])
def test_what_is_meant_to_last_is_started_again_whatever_its_exit_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr("hindcast.app.system.supervisor.BACKOFF_S", (0.01,))
    command = (sys.executable, "-c", f"raise SystemExit({status})")
    supervisor = Supervisor("bus.1", lambda: command, folder=tmp_path, lasting=True)

    def on_started(_pid: int) -> int:
        if supervisor.restarts == 2:
            supervisor._stop(signal.SIGTERM, None)
        return 0

    assert supervisor.run(on_started=on_started) == 0
    assert supervisor.restarts == 2


@pytest.mark.parametrize(("name", "status"), [("actor", STOPPED), ("learner", STOPPED), ("prepare", 0)])
def test_a_worker_that_is_told_to_stop_does_not_say_that_its_work_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, status: int
) -> None:
    async def role(_name: str, stop: asyncio.Event, _ready: worker.Ready) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await stop.wait()

    monkeypatch.setenv("HINDCAST_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["worker", name, f"{name}.1"])
    monkeypatch.setattr(worker, "configure_logging", lambda *_, **__: None)
    monkeypatch.setattr("hindcast.app.bootstrap.ROLES", {name: role})
    assert worker.main() == status


def test_a_worker_that_somebody_else_told_to_stop_is_started_again(tmp_path: Path) -> None:
    """`kill` without -9: the run must not go on without one of its roles."""
    started: list[int] = []
    twice = threading.Event()
    supervisor = supervised(tmp_path, f"import sys; sys.exit({STOPPED})")

    def on_started(pid: int) -> int:
        started.append(pid)
        if len(started) == 2:
            twice.set()
        return 0

    stopping = stop_when(supervisor, twice)
    assert supervisor.run(on_started=on_started) == 0
    stopping.join()
    assert len(started) >= 2


def test_a_worker_that_leaves_does_not_wait_for_a_blocked_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, ended = threading.Event(), threading.Event()

    def block() -> None:
        gate.wait(WAIT_S)
        ended.set()

    async def role(_name: str, _stop: asyncio.Event, _ready: worker.Ready) -> None:
        blocked = asyncio.create_task(asyncio.to_thread(block))
        await asyncio.sleep(0)
        blocked.cancel()

    monkeypatch.setenv("HINDCAST_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["worker", "learner", "learner.1"])
    monkeypatch.setattr(worker, "configure_logging", lambda *_, **__: None)
    monkeypatch.setattr("hindcast.app.bootstrap.ROLES", {"learner": role})
    status = worker.main()
    waited = ended.is_set()
    gate.set()
    assert (status, waited) == (0, False)
    assert ended.wait(WAIT_S)


def test_a_signal_may_arrive_at_every_step_of_handling_another(tmp_path: Path) -> None:
    """systemd and a terminal's end send several at once, and honcho its own."""
    supervisor = supervised(tmp_path, "")
    arrived: list[str] = []

    def interrupt(_frame: object, event: str, _argument: object) -> None:
        arrived.append(event)
        supervisor._stop(signal.SIGINT, None)

    def handle() -> None:
        sys.setprofile(interrupt)
        supervisor._stop(signal.SIGTERM, None)
        sys.setprofile(None)

    thread = threading.Thread(target=handle, daemon=True)  # it would block for ever
    thread.start()
    thread.join(5)
    assert not thread.is_alive()
    assert arrived
    assert supervisor.is_stopping()


def test_a_supervisor_whose_starter_is_gone_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, "-c", ""])
    os.waitpid(gone, 0)
    monkeypatch.setenv(STARTER, str(gone))
    assert supervised(tmp_path, "import time; time.sleep(60)").run() == 0


@pytest.mark.parametrize("text", ["updates", "updates=0", "updates=-1", "steps=5", "updates=x", ""])
def test_a_goal_that_is_none_is_a_worded_error(text: str) -> None:
    with pytest.raises(SettingsError, match="Give updates=N or episodes=N"):
        parse_until([text])


def test_a_goal_that_a_recipe_never_reaches_is_refused() -> None:
    sft = resolve(recipe="sft").settings
    with pytest.raises(SettingsError, match="plays nothing but demonstrations"):
        require_reachable({"episodes": 3}, sft)
    require_reachable({"updates": 3, "minutes": 1}, sft)
    require_reachable({"episodes": 3}, resolve(recipe="cloning").settings)


def test_a_goal_is_reached_when_its_number_is() -> None:
    launch = Launch(run="r", until=parse_until(["updates=5", "minutes=2"]))
    assert launch.reached(4, 99, 60) == ""
    assert launch.reached(5, 0, 0) == "updates=5"
    assert launch.reached(0, 0, 121) == "minutes=2"


def test_where_and_how_fast_a_run_works_may_change_and_what_it_computes_may_not() -> None:
    assert is_operational("log.max_bytes")
    assert is_operational("actors.browser_path")
    assert not is_operational("learner.learning_rate")
    assert not is_operational("actors.temperature")


def test_a_fact_of_newer_code_starts_a_worker_again_only_where_that_code_is_installed_by_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upgrade under a running system: whoever meets the first new fact comes back as the new code, once."""
    monkeypatch.setenv("HINDCAST_HOME", str(tmp_path))
    newer = UnknownVersion("step.taken has version 9")
    monkeypatch.setattr(worker, "BEGAN", 0.0)
    assert worker.explain(newer, "learner.1") == 1
    monkeypatch.setattr(worker, "BEGAN", time.time() + 60)
    assert worker.explain(newer, "learner.1") == HOPELESS
    source = tmp_path / "events" / "catalogue" / "episode.py"
    source.parent.mkdir(parents=True)
    source.write_text("")
    assert is_code_newer_than(source.stat().st_ctime - 1, tmp_path)
    assert not is_code_newer_than(source.stat().st_ctime, tmp_path)


def test_what_ends_the_whole_system_is_what_a_start_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that is away is waited for by those who are started again; who opens the run is not."""
    monkeypatch.setenv("HINDCAST_HOME", str(tmp_path))
    away = BrokerUnreachable("the broker at nats://127.0.0.1:1 does not answer")
    assert worker.explain(away, "actor.1") == 1
    assert read_json(tmp_path / FAILURE) is None
    assert worker.explain(away, "bus.1", once=True) == HOPELESS
    assert read_json(tmp_path / FAILURE) == {"name": "bus.1", "message": str(away)}


def test_workers_find_modules_of_a_relative_search_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They run in the home's folder."""
    monkeypatch.chdir(tmp_path)
    given = os.pathsep.join(["plugins", "/opt/mine"])
    assert absolute_python_path({"PYTHONPATH": given}) == {
        "PYTHONPATH": os.pathsep.join([str(tmp_path / "plugins"), "/opt/mine"])
    }
    assert absolute_python_path({}) == {}


async def test_a_worker_that_crashes_before_it_is_ready_is_shown_while_the_start_waits(
    tmp_path: Path,
) -> None:
    """It would look like a start that hangs."""
    said: list[str] = []
    stop, alerts = asyncio.Event(), ProcessAlerts(tmp_path)

    class Starting(System):
        def check(self) -> None:
            """The worker goes from its first start to its second; then the person stops waiting."""
            restarts = len(said)
            report(tmp_path / "processes", name="judge.1", pid=1, state="starting")
            if alerts.changes() == [] and not restarts:
                report(
                    tmp_path / "processes", name="judge.1", pid=1, state="restarting", restarts=1, detail="Oh"
                )
            else:
                stop.set()

    await wait_until_ready(Starting(tmp_path, {"judge": 1}), said.append, stop, changes=alerts.changes)
    assert said == ["judge.1 is started again (time 1): Oh"]
