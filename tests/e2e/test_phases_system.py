"""The recipe `webrl` as its users meet it: two phases, stopped in the middle of a batch, gone on with, checked."""

from typing import Any

import pytest

from processes.system import SMALL, Home, settings

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800), pytest.mark.broker, pytest.mark.browser]

PHASES = {
    # tasks as configured: these sites do not know their goals before a page is seen
    "evolution.generator": "",
    "curriculum.group_size": "1",
    "curriculum.max_running": "4",
    "learner.phase_episodes": "4",
    "learner.critic_epochs": "1",
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Three updates of the policy: all of the first phase and half of the second."""
    home = Home(tmp_path_factory.mktemp("home"))
    begin = ("start", "--run", "phases", "--recipe", "webrl", "--until", "updates=1")
    assert home.json(*begin, *settings(PHASES, base=SMALL), timeout_s=600)["updates"] == 1
    assert home.json("start", "--run", "phases", "--until", "updates=3", timeout_s=600)["updates"] == 3
    return home


def test_both_models_verify_bit_for_bit_across_a_restart(home: Home) -> None:
    report = home.json("verify", "phases", timeout_s=600)
    assert report["identical"]
    # two of the critic and two of the policy, then two of the critic and one of the policy
    assert report["updates"] == 7


def test_an_audit_finds_nothing(home: Home) -> None:
    assert home.json("audit", "phases", timeout_s=600)["defects"] == []


def test_the_read_model_folds_again_to_the_same_bytes(home: Home) -> None:
    assert home.json("rebuild", "phases", timeout_s=600)["identical"]


def test_lineage_names_the_critic_that_valued_a_batch(home: Home) -> None:
    told: Any = home.json("lineage", "batch", "1", "--run", "phases", timeout_s=600)
    assert "valued by" in str(told)
    assert "critic" in str(told)
