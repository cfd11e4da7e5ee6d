"""A training run whose policy is sampled on a real vLLM server that is killed in the middle: no episode is lost."""

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from served_run import (
    AGREES,
    PATIENCE_S,
    RUN,
    arguments,
    drain,
    ends,
    facts,
    published,
    requested,
    sampled_from,
    troubles,
)
from system import Home

from events.catalogue import EpisodeAbandoned, UpdateApplied
from events.envelope import Fact

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(3600)]


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
    system = home.start(*arguments(tmp_path))

    def wait_for(what: str, condition: Callable[[Sequence[Fact]], bool]) -> None:
        home.wait_for(what, lambda: condition(facts(home)), timeout_s=PATIENCE_S)

    try:
        wait_for("a step on new weights", lambda seen: max(sampled_from(seen), default=0) > 0)
        os.kill(server_under(home.pid("policy_server.1")), signal.SIGKILL)
        wait_for("what is said of its end", lambda seen: "ended" in troubles(seen))
        before = published(facts(home))
        wait_for("a step on newer weights", lambda seen: max(sampled_from(seen)) > before)
        drain(home)
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
    report = home.json("verify", RUN, timeout_s=PATIENCE_S)
    assert report["identical"], report["first_divergence"]
    assert report["updates"] == len(updates) > before
    assert home.json("audit", RUN, timeout_s=PATIENCE_S)["defects"] == []
