"""A training run of an adapter whose policy is sampled on a real vLLM server: each version by a name of its own."""

from pathlib import Path

import httpx2
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

from actors.engines.vllm.weights import versions_in
from app.places import POLICY_FILE, base_url_in
from core.models.adapter_file import CONFIG_NAME
from events.catalogue import EpisodeAbandoned, UpdateApplied

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(3600)]

ADAPTER = {
    "learner.lora_rank": "4",
    # of this size an update moves log-probabilities far beyond rounding, so that another adapter's would be noticed
    "learner.lora_alpha": "16",
    "learner.learning_rate": "0.02",
}


def served_names(home: Home) -> list[str]:
    """What the run's server can be asked for."""
    address = base_url_in(home.folder / POLICY_FILE)
    assert address is not None
    answer = httpx2.get(f"{address}/v1/models", trust_env=False, timeout=PATIENCE_S).raise_for_status()
    return [model["id"] for model in answer.json()["data"]]


def test_a_run_of_an_adapter_samples_from_each_version_by_name_and_verifies(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    system = home.start(*arguments(tmp_path, **ADAPTER))
    names: list[str] = []

    def two_are_left() -> bool:
        names[:] = served_names(home)
        return len(names) == 3

    try:
        home.wait_for(
            "steps of two adapters", lambda: len(sampled_from(facts(home))) > 2, timeout_s=PATIENCE_S
        )
        drain(home)
        home.wait_for("the last two adapters", two_are_left, timeout_s=PATIENCE_S)
        before_the_end = facts(home)
    finally:
        status = home.stop(system) if system.poll() is None else system.returncode
    assert status == 0, home.words()
    assert not troubles(before_the_end)

    seen = facts(home)
    assert 0 in sampled_from(seen)
    assert set(ends(seen)) == requested(seen)
    assert not [fact for fact in seen if isinstance(fact, EpisodeAbandoned)]
    (log,) = {name.rpartition(":")[0] for name in names[1:]}
    assert log.startswith(f"{RUN}.")
    assert versions_in(names, log)[-1] <= published(seen)
    laid_out = list((home.folder / "policy-server" / "versions" / log).iterdir())
    assert len(laid_out) > 1
    assert all((folder / CONFIG_NAME).is_file() for folder in laid_out)

    updates = [fact for fact in seen if isinstance(fact, UpdateApplied)]
    assert max(fact.metrics["mismatch_kl"] for fact in updates) < AGREES
    report = home.json("verify", RUN, timeout_s=PATIENCE_S)
    assert report["identical"], report["first_divergence"]
    assert report["updates"] == len(updates) > 2
