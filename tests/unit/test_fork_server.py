"""Workers are forked from a process that has loaded their modules, and each of the three ends with those it depends on."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hindcast.app.system import forked_workers
from hindcast.app.system.fork_server import GROUPS
from hindcast.app.system.forked_workers import ForkedWorker, ForkServerClient
from hindcast.app.system.processes import pid_alive
from processes.system import ROOT

WAIT_S = 30.0
SERVER = """
import os, socket, sys
from hindcast.app.system.fork_server import ForkServer, close_inherited

def run(request):
    exec(os.environ["CODE"])
    os._exit(0)

close_inherited(int(sys.argv[2]))
ForkServer(socket.socket(fileno=int(sys.argv[2])), began=float(os.environ.get("BEGAN", "inf")), run=run).serve()
"""
"""A fork server whose workers run `CODE`."""

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="fork servers run on Linux only"),
]


def servers_in(folder: Path, role: str = "judge") -> ForkServerClient:
    return ForkServerClient(folder, role, f"{role}.1", is_stopping=lambda: False)


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForkServerClient]:
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    monkeypatch.setattr(forked_workers, "SERVER", (sys.executable, str(script)))
    # pytest's own replacements have no file
    monkeypatch.setattr(sys, "stdout", sys.__stdout__)
    monkeypatch.setattr(sys, "stderr", sys.__stderr__)
    servers = servers_in(tmp_path / ("deep" * 30) / "processes")
    yield servers
    servers.close()


def started(servers: ForkServerClient, code: str) -> ForkedWorker:
    worker = servers.start({**os.environ, "CODE": code})
    assert worker is not None
    return worker


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def wait_until_ended(*pids: int) -> None:
    until = time.monotonic() + WAIT_S
    while any(pid_alive(pid) for pid in pids):
        assert time.monotonic() < until, pids
        time.sleep(0.02)


def test_a_worker_writes_to_its_supervisors_output_and_reports_its_exit_status(
    servers: ForkServerClient, capfd: pytest.CaptureFixture[str]
) -> None:
    assert started(servers, "print('at work', flush=True); os._exit(7)").wait(WAIT_S) == 7
    second = started(servers, "import time; time.sleep(60)")
    assert second.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        second.wait(0.05)
    second.terminate()
    assert second.wait(WAIT_S) == -signal.SIGTERM
    assert second.poll() == -signal.SIGTERM
    assert capfd.readouterr().out == "at work\n"


@pytest.mark.usefixtures("servers")
def test_a_worker_gets_its_own_environment_session_and_no_files_of_the_server(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    code = (
        "import json; names = [f'/proc/self/fd/{n}' for n in range(3, 100)]; "
        "links = [os.readlink(name) for name in names if os.path.lexists(name)]; "
        "files = [link for link in links if link.startswith(('socket', 'anon_inode'))]; "
        f"open({str(seen)!r}, 'w').write(json.dumps([os.getsid(0) == os.getpid(), dict(os.environ), files]))"
    )
    other = servers_in(tmp_path / "processes", "site")
    with (
        socket.socket() as left_open
    ):  # as by a native library, which lets programs that are started have its sockets
        left_open.set_inheritable(True)
        started(other, "import time; time.sleep(60)")
        mine = servers_in(tmp_path / "processes")
        assert started(mine, code).wait(WAIT_S) == 0
    mine.close()
    other.close()
    is_leader, environment, files = json.loads(seen.read_text())
    assert is_leader
    assert environment == {**os.environ, "CODE": code}
    assert files == []


def test_the_end_of_a_supervisor_kills_its_worker_and_what_this_has_started(
    servers: ForkServerClient, tmp_path: Path
) -> None:
    noted = tmp_path / "child"
    code = (
        "import subprocess, sys, time, pathlib;"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
        f"pathlib.Path({str(noted)!r}).write_text(str(child.pid)); time.sleep(60)"
    )
    worker = started(servers, code)
    server = parent_of(worker.pid)
    until = time.monotonic() + WAIT_S
    while not (noted.exists() and noted.read_text()):
        assert time.monotonic() < until
        time.sleep(0.02)
    servers.close()
    wait_until_ended(worker.pid, int(noted.read_text()), server)


def test_a_killed_server_takes_its_workers_along_and_the_next_worker_has_a_new_server(
    servers: ForkServerClient,
) -> None:
    worker = started(servers, "import time; time.sleep(60)")
    server = parent_of(worker.pid)
    os.kill(server, signal.SIGKILL)
    assert worker.wait(WAIT_S) == -signal.SIGKILL
    wait_until_ended(worker.pid)
    again = started(servers, "import time; time.sleep(60)")
    assert parent_of(again.pid) != server


def test_supervisors_of_one_environment_share_a_server(servers: ForkServerClient, tmp_path: Path) -> None:
    folder = tmp_path / "processes"
    names = {"HONCHO_PROCESS_NAME": "site.1", "PORT": "5100"}
    both = [servers_in(folder), servers_in(folder, "site")]
    first = started(both[0], "import time; time.sleep(60)")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in names.items():
            patch.setenv(name, value)
        second = started(both[1], "import time; time.sleep(60)")
        patch.setenv("OMP_NUM_THREADS", "7")
        third = started(servers, "import time; time.sleep(60)")
    assert parent_of(first.pid) == parent_of(second.pid) != parent_of(third.pid)
    for one in both:
        one.close()
    wait_until_ended(first.pid, second.pid)


def test_a_server_with_older_code_refuses(servers: ForkServerClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BEGAN", "0")
    assert servers.start({**os.environ, "CODE": ""}) is None


def test_a_server_that_cannot_load_its_modules_is_done_without(
    servers: ForkServerClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        forked_workers, "SERVER", (sys.executable, "-c", "raise ImportError('no such module')")
    )
    assert servers.start(os.environ) is None


def test_what_one_request_breaks_ends_no_other_worker(servers: ForkServerClient, tmp_path: Path) -> None:
    folder = tmp_path / "processes"
    first, second = servers_in(folder), servers_in(folder, "site")
    worker = started(first, "import time; time.sleep(60)")
    assert started(second, "os._exit(0)").wait(WAIT_S) == 0
    assert second._connection is not None
    second._connection.send(b"no request")
    until = time.monotonic() + WAIT_S
    while not second._connection.recv(100):
        assert time.monotonic() < until
    assert started(second, "os._exit(5)").wait(WAIT_S) == 5
    assert second.start({**os.environ, "LONG": "x" * 200_000}) is None
    assert worker.poll() is None
    first.close()
    second.close()


def test_a_variable_need_not_be_text(servers: ForkServerClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environb, b"ODD", b"caf\xe9")
    assert started(servers, "os._exit(7 if os.environb[b'ODD'] == b'caf\\xe9' else 1)").wait(WAIT_S) == 7


def test_a_stop_sent_to_every_process_reaches_the_workers_and_not_the_server(
    servers: ForkServerClient, tmp_path: Path
) -> None:
    waiting = tmp_path / "waiting"
    code = (
        "import pathlib, signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: os._exit(9)); "
        f"pathlib.Path({str(waiting)!r}).touch(); time.sleep(60)"
    )
    worker = started(servers, code)
    until = time.monotonic() + WAIT_S
    while not waiting.exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    os.kill(parent_of(worker.pid), signal.SIGTERM)
    worker.terminate()
    assert worker.wait(WAIT_S) == 9
    assert started(servers, "os._exit(0)").wait(WAIT_S) == 0


def test_workers_draw_different_random_numbers() -> None:
    code = (
        "import os, numpy.random; from hindcast.app.system import fork_server, worker; "
        "from hindcast.app.system.forked_workers import ForkRequest\n"
        "worker.main = lambda: print(numpy.random.random(), flush=True)\n"
        "for _ in range(2):\n"
        "    if (pid := os.fork()) == 0:\n"
        "        fork_server._run_worker(ForkRequest(role='judge', name='judge.1', environment={}))\n"
        "    os.waitpid(pid, 0)"
    )
    drawn = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert len(set(drawn.stdout.split())) == 2


@pytest.mark.usefixtures("servers")
def test_a_stop_does_not_wait_for_a_server_that_is_still_loading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forked_workers, "SERVER", (sys.executable, "-c", "import time; time.sleep(60)"))
    asked: list[float] = []

    def is_stopping() -> bool:
        asked.append(time.monotonic())
        return len(asked) > 3

    servers = ForkServerClient(tmp_path / "processes", "judge", "judge.1", is_stopping=is_stopping)
    assert servers.start(os.environ) is None
    servers.close()


@pytest.mark.usefixtures("servers")
def test_a_server_that_does_not_answer_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forked_workers, "SERVER", (sys.executable, "-c", "import time; time.sleep(60)"))
    monkeypatch.setattr(forked_workers, "LONGEST_LOAD_S", 0.2)
    client = servers_in(tmp_path / "processes")
    assert client.start(os.environ) is None
    assert client._given_up
    for server in client._servers:
        os.kill(server, signal.SIGKILL)


@pytest.mark.torch
@pytest.mark.parametrize("group", GROUPS)
def test_loading_a_group_starts_nothing_that_a_fork_would_break(group: str) -> None:
    code = (
        f"import importlib, threading; [importlib.import_module(name) for name in {GROUPS[group]!r}]; import sys; "
        "print(threading.active_count(), 'torch' in sys.modules, 'torch' in sys.modules and sys.modules['torch'].cuda.is_initialized())"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert loaded.stdout.split() == ["1", str(group == "torch"), "False"]
