"""One broker per store, however many commands want one at once, and none left behind."""

import asyncio
import os
import signal
import socket
from pathlib import Path

import psutil
import pytest

from hindcast.app.system.broker import (
    STATE,
    BrokerState,
    ensure_broker,
    greets,
    note_broker,
    noted_broker,
    plan_broker,
    running_broker,
)
from hindcast.app.system.processes import write_json
from hindcast.core.errors import BrokerUnreachable
from hindcast.events.jetstream.broker import PortTaken

pytestmark = pytest.mark.broker

WAIT_S = 60.0


def servers_of(home: Path) -> list[int]:
    """Process ids of every server on this home's store."""
    return [pid for pid, program in processes_of(home).items() if program == "nats-server"]


def processes_of(home: Path) -> dict[int, str]:
    """Programs by process id that name this home: its servers and their watchdogs."""
    processes = psutil.process_iter(["pid", "cmdline"])
    commands = {p.info["pid"]: p.info["cmdline"] or () for p in processes}
    return {
        pid: Path(command[0]).name
        for pid, command in commands.items()
        if any(str(home) in part for part in command)
    }


async def test_a_passing_broker_answers_during_the_block_and_is_gone_after_it(tmp_path: Path) -> None:
    async with ensure_broker(tmp_path) as url:
        port = int(url.rpartition(":")[2])
        assert greets(port, within_s=1)
        assert len(servers_of(tmp_path)) == 1
    assert servers_of(tmp_path) == []
    assert running_broker(tmp_path) is None


async def test_many_at_once_share_one_broker_and_the_last_stops_it(tmp_path: Path) -> None:
    seen: set[tuple[int, ...]] = set()

    async def use(number: int) -> None:
        await asyncio.sleep(0.03 * (number % 3))
        async with ensure_broker(tmp_path):
            await asyncio.sleep(0.1 * number)
            seen.add(tuple(await asyncio.to_thread(servers_of, tmp_path)))

    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
        for number in range(6):
            group.create_task(use(number))
    assert seen
    assert {len(servers) for servers in seen} == {1}
    assert servers_of(tmp_path) == []


async def test_one_who_leaves_while_it_is_being_started_leaves_none_behind(tmp_path: Path) -> None:
    async def use() -> None:
        async with ensure_broker(tmp_path):
            raise AssertionError("it was not waited for")

    using = asyncio.create_task(use())
    async with asyncio.timeout(WAIT_S):
        while noted_broker(tmp_path) is None:  # noqa: ASYNC110 - a thread's file
            await asyncio.sleep(0)
        using.cancel()
        await asyncio.wait((using,))
        assert using.cancelled()
        while await asyncio.to_thread(processes_of, tmp_path):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)
    assert running_broker(tmp_path) is None


async def test_the_port_is_kept_for_the_next_time(tmp_path: Path) -> None:
    async with ensure_broker(tmp_path) as url:
        pass
    async with ensure_broker(tmp_path) as again:
        assert again == url


async def test_a_broker_that_was_killed_is_replaced(tmp_path: Path) -> None:
    async with ensure_broker(tmp_path):
        (pid,) = servers_of(tmp_path)
        os.kill(pid, signal.SIGKILL)
        psutil.Process(pid).wait(10)
        async with ensure_broker(tmp_path):
            (other,) = servers_of(tmp_path)
            assert other != pid
    assert servers_of(tmp_path) == []


async def test_a_note_about_a_process_of_another_time_is_not_believed(tmp_path: Path) -> None:
    write_json(tmp_path / STATE, {"port": 1, "pid": os.getpid(), "passing": True, "began": 0.5})
    assert noted_broker(tmp_path) == BrokerState(port=1, pid=os.getpid(), passing=True, began=0.5)
    assert running_broker(tmp_path) is None
    async with ensure_broker(tmp_path):
        assert len(servers_of(tmp_path)) == 1


async def test_the_lasting_broker_takes_the_place_of_a_passing_one_and_is_never_stopped_by_a_command(
    tmp_path: Path,
) -> None:
    async with ensure_broker(tmp_path) as url:
        plan = await asyncio.to_thread(plan_broker, tmp_path, port=0)
        assert plan.url == url
        assert servers_of(tmp_path) == []
        server = await asyncio.create_subprocess_exec(*plan.command(), start_new_session=True)
        assert await asyncio.to_thread(greets, plan.port, within_s=20)
    assert server.returncode is None
    async with ensure_broker(tmp_path) as again:
        assert again == url
    assert servers_of(tmp_path) == [server.pid]
    server.terminate()
    await server.wait()


async def test_a_fixed_port_that_is_taken_is_a_worded_error(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken, match=str(port)):
            async with ensure_broker(tmp_path, port=port):
                pass
    assert servers_of(tmp_path) == []


async def test_a_broker_that_does_not_answer_is_a_worded_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hindcast.app.system.broker.START_S", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        note_broker(tmp_path, port=port, pid=os.getpid())
        with pytest.raises(BrokerUnreachable, match=f"has not answered on port {port}"):
            async with ensure_broker(tmp_path):
                pass


async def test_a_clock_that_jumps_a_day_starts_no_second_server_on_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Start times in unix seconds move with the clock: psutil then tells another one of the same process."""
    async with ensure_broker(tmp_path) as url:
        began = psutil.Process.create_time
        monkeypatch.setattr(psutil.Process, "create_time", lambda process: began(process) + 86_400)
        async with ensure_broker(tmp_path) as again:
            assert again == url
            assert len(servers_of(tmp_path)) == 1
    assert servers_of(tmp_path) == []
