"""Which GPUs policy servers and learner use: commands, environments, conflicts, and several servers of one machine."""

import asyncio
import itertools
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from fakes.tiny_policy import write_tiny_policy
from hindcast.actors.engines.vllm.server import VllmServer
from hindcast.actors.policy_servers.command import server_command, server_environment, server_gpus
from hindcast.app.runs.runs import RunHandle
from hindcast.app.settings.configuration import merge_recorded, read_override, resolve
from hindcast.app.system.policy_servers import addresses_of, free_ports, keep_servers
from hindcast.core.errors import EngineFailed, SettingsError
from hindcast.core.settings.schema import LogSettings, Settings
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.publisher import Publisher
from stories.training_story import Story, tell

TESTS = Path(__file__).parents[1]
NAMES = ("output.log", "output-2.log")


def settings(**vllm: object) -> Settings:
    return Settings.model_validate({"vllm": vllm})


def test_each_group_of_gpus_has_a_server() -> None:
    assert server_gpus(settings(gpus=(4, 5, 6, 7), gpus_per_server=2).vllm) == [(4, 5), (6, 7)]
    assert server_gpus(settings().vllm) == [()]


def test_a_server_is_started_with_its_share_its_sequences_and_its_gpus(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    placed = settings(python="/v/bin/python", gpus=(2, 3), gpus_per_server=2, memory_share=0.4)
    command = server_command(Path("/v/bin/python"), tmp_path, port=81, settings=placed)
    pairs = dict(itertools.pairwise(command))
    assert pairs["--gpu-memory-utilization"] == "0.4"
    assert pairs["--tensor-parallel-size"] == "2"
    assert pairs["--max-num-seqs"] == "256"
    assert server_environment(placed, {}, gpus=(2, 3))["CUDA_VISIBLE_DEVICES"] == "2,3"


def test_without_gpus_a_server_is_started_as_before(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    command = server_command(Path("/v/bin/python"), tmp_path, port=81, settings=Settings())
    assert not {"--gpu-memory-utilization", "--tensor-parallel-size"} & set(command)
    assert dict(itertools.pairwise(command))["--max-num-seqs"] == str(Settings().policy.max_batch)
    assert "CUDA_VISIBLE_DEVICES" not in server_environment(Settings(), {})


def test_gpus_are_numbered_among_those_that_a_scheduler_gives() -> None:
    given = {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b,GPU-c"}
    assert server_environment(settings(), given, gpus=(1, 2))["CUDA_VISIBLE_DEVICES"] == "GPU-b,GPU-c"
    with pytest.raises(SettingsError, match=r"names GPU 3.*gives this process 3"):
        server_environment(settings(), given, gpus=(2, 3))


LEARNER = ("policy.engine=vllm", "learner.device=cuda", "learner.processes=2")


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        (("vllm.gpus=[1,2]",), "both use GPU 1"),
        ((), "both use GPU 0"),
        (("vllm.gpus=[2,2]",), "names a GPU twice"),
        (("vllm.gpus=[2,3,4]", "vllm.gpus_per_server=2"), "do not divide into servers"),
        (("vllm.gpus_per_server=2", "vllm.memory_share=0.5"), "vllm.gpus is empty"),
        (("vllm.gpus=[2]", "vllm.arguments=--tensor-parallel-size=2"), "leave one out"),
        (("vllm.memory_share=0.5", "vllm.arguments=--gpu_memory_utilization=0.8"), "leave one out"),
        (("vllm.gpus=[2]", "vllm.servers=http://127.0.0.1:8000"), "servers that run already"),
    ],
)
def test_a_placement_that_cannot_be_is_refused(overrides: tuple[str, ...], why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        resolve(environment={}, overrides=[*LEARNER, *overrides])


@pytest.mark.parametrize(
    "overrides",
    [
        ("vllm.gpus=[2,3]",),
        ("vllm.memory_share=0.4",),
        ("vllm.arguments=--gpu-memory-utilization=0.4",),
        ("vllm.servers=http://127.0.0.1:8000",),
        ("learner.device=cpu",),
        ("policy.engine=in_process",),
    ],
)
def test_a_placement_without_overlap_or_with_a_bounded_share_is_accepted(overrides: tuple[str, ...]) -> None:
    assert resolve(environment={}, overrides=[*LEARNER, *overrides])


def test_a_recorded_run_without_a_placement_stays_readable() -> None:
    assert merge_recorded([read_override(text) for text in LEARNER], recipe="mgrpo")


def test_ports_are_different_and_the_last_ones_come_again() -> None:
    first = free_ports(3)
    assert len(set(first)) == 3
    assert free_ports(3, last=first) == first


@pytest.mark.torch
@pytest.mark.process
async def test_several_servers_of_one_machine_are_started_each_on_its_gpu_and_end_together(
    tmp_path: Path,
) -> None:
    """The real role and real processes; stand-ins answer, because this machine has no GPU."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={TESTS} exec {sys.executable} -m fakes.policy_stand_in "$@"\n')
    python.chmod(0o755)
    policy = write_tiny_policy(tmp_path / "policy")
    overrides = [f"policy.base={policy}", "policy.engine=vllm", f"vllm.python={python}", "vllm.gpus=[2,3]"]
    handle = RunHandle(tmp_path / "home", "run-1", resolve(environment={}, overrides=overrides))
    log = MemoryLog("run-1")
    await tell(log, [Story(policy).start(handle.blobs, handle.settings)])
    ready = asyncio.Event()
    publisher = Publisher(log, producer="policy_server.1", code_rev="test", settings=LogSettings())
    async with publisher:
        role = asyncio.create_task(keep_servers(handle, log, publisher, ready=lambda _: ready.set()))
        try:
            async with asyncio.timeout(120):
                waiting = asyncio.create_task(ready.wait())
                await asyncio.wait({role, waiting}, return_when=asyncio.FIRST_COMPLETED)
                assert ready.is_set(), role.exception()
                addresses = addresses_of(handle.settings, handle.home)()
                assert len(set(addresses)) == 2
                seen = [json.loads((handle.home / "policy-server" / name).read_text()) for name in NAMES]
                assert [one["gpus"] for one in seen] == ["2", "3"]
                async with VllmServer(addresses[1]) as second:
                    assert await second.is_healthy(timeout_s=5)
                os.kill(seen[0]["pid"], signal.SIGKILL)
                with pytest.raises(ExceptionGroup) as ended:
                    await role
                assert ended.group_contains(EngineFailed)
        finally:
            role.cancel()
