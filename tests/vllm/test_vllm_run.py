"""A training run whose policy is sampled on a real vLLM server that is killed in the middle: no episode is lost.

The policy is random; a scaffold of the test's own leaves it clicks and waiting, so that it wins about every other episode on
two buttons: groups differ, and M-GRPO has something to learn from. The run has no goal of its own: the test drains it once it
has seen what it waits for, however long that takes.
"""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from bench.untied import write_untied
from hindcast.app.runs.runs import open_run
from hindcast.core.domain.arrays import unpack_ids
from hindcast.events.catalogue import (
    EpisodeAbandoned,
    EpisodeCancelled,
    EpisodeEnded,
    EpisodeRequested,
    PolicyServerTroubled,
    StepTaken,
    UpdateApplied,
    WeightsPublished,
)
from hindcast.events.envelope import Fact
from hindcast.events.log.reader import read
from processes.system import Home

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(3600)]

PATIENCE_S = 1200
AGREES = 1e-6
"""KL per token between sampler and learner, at equal weights in float32."""
STATES = """
environment = "miniwob"

[[state]]
name = "buttons"
path = ".*"
instruction = "Click on what the task names."
actions = [{ action = "Click" }, { action = "Wait" }]
"""
SETTINGS = {
    "policy.engine": "vllm",
    "curriculum.environments": '["miniwob"]',
    "curriculum.families": '["miniwob/click-test-2"]',
    "curriculum.group_size": "4",
    "curriculum.max_running": "8",
    "curriculum.task_pool": "4",
    "actors.max_answer_tokens": "120",
    "actors.contexts": "4",
    "scaffold.stages": "1",
    "learner.options.group_batch": "1",
    "learner.minibatches": "1",
    "learner.epochs": "1",
    "learner.options.rehearsal_episodes": "0",
    # a server takes its time to start again, and nothing gives up meanwhile
    "actors.generate_timeout_s": "900",
    "actors.episode_timeout_s": "1000",
    "curriculum.lease_s": "1200",
}


async def _facts(home: Home) -> list[Fact]:
    async with open_run("served", home=home.folder).connect_log() as log:
        return [recorded.fact async for recorded in read(log)]


def facts(home: Home) -> list[Fact]:
    return asyncio.run(_facts(home))


def sampled_from(seen: Sequence[Fact]) -> set[int]:
    """Versions that tokens were sampled from."""
    steps = [fact for fact in seen if isinstance(fact, StepTaken)]
    return {version for step in steps for version in unpack_ids(step.versions).tolist()}


def published(seen: Sequence[Fact]) -> int:
    """The newest published version."""
    return max((fact.version for fact in seen if isinstance(fact, WeightsPublished)), default=0)


def requested(seen: Sequence[Fact]) -> set[str]:
    return {fact.episode for fact in seen if isinstance(fact, EpisodeRequested)}


def ends(seen: Sequence[Fact]) -> Counter[str]:
    """How often each episode ended."""
    return Counter(
        fact.episode for fact in seen if isinstance(fact, EpisodeEnded | EpisodeAbandoned | EpisodeCancelled)
    )


def troubles(seen: Sequence[Fact]) -> set[str]:
    return {fact.trouble for fact in seen if isinstance(fact, PolicyServerTroubled)}


def server_under(pid: int) -> int:
    """The process that `policy_server` started: vLLM's."""
    children = [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]
    (server,) = [
        child for child in children if b"vllm.entrypoints" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]
    return server


def test_a_run_on_a_server_that_is_killed_loses_no_episode_and_verifies(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    base = write_untied(tmp_path / "policy", seed=0, width=64, inner=128, layers=2, heads=2, spread=0.05)
    states = tmp_path / "buttons.toml"
    states.write_text(STATES)
    wanted = {**SETTINGS, "policy.base": str(base), "scaffold.states": str(states)}
    chosen = [part for key, value in wanted.items() for part in ("--set", f"{key}={value}")]
    system = home.start("--recipe", "mgrpo", "--run", "served", *chosen)

    def wait_for(what: str, condition: Callable[[Sequence[Fact]], bool]) -> None:
        home.wait_for(what, lambda: condition(facts(home)), timeout_s=PATIENCE_S)

    try:
        wait_for("a step on new weights", lambda seen: max(sampled_from(seen), default=0) > 0)
        os.kill(server_under(home.pid("policy_server.1")), signal.SIGKILL)
        wait_for("what is said of its end", lambda seen: "ended" in troubles(seen))
        before = published(facts(home))
        wait_for("a step on newer weights", lambda seen: max(sampled_from(seen)) > before)
        home.json("ctl", "drain", "--run", "served")
        wait_for("the end of all episodes", lambda seen: set(ends(seen)) == requested(seen))
    finally:
        status = home.stop(system) if system.poll() is None else system.returncode
    assert status == 0, home.words()
    assert home.restarts("policy_server.1") == 1

    seen = facts(home)
    assert set(ends(seen)) == requested(seen)
    assert set(ends(seen).values()) == {1}
    assert not [fact for fact in seen if isinstance(fact, EpisodeAbandoned)], "none was lost"
    updates = [fact for fact in seen if isinstance(fact, UpdateApplied)]
    assert max(fact.metrics["mismatch_kl"] for fact in updates) < AGREES
    report = home.json("verify", "served", timeout_s=PATIENCE_S)
    assert report["identical"], report["first_divergence"]
    assert report["updates"] == len(updates) > before
    assert home.json("audit", "served", timeout_s=PATIENCE_S)["defects"] == []
