"""LASER as its users meet it: trained under the scaffold in real Chromium, its learner killed in the middle, held
against its log."""

import asyncio
import signal
from collections import Counter

import numpy as np
import pytest

from hindcast.app.runs.runs import open_run
from hindcast.core.domain.arrays import unpack_floats, unpack_ids
from hindcast.core.grammar.allowed_tokens import unpack_allowed
from hindcast.events.catalogue import StepTaken, UpdateApplied
from hindcast.events.envelope import Recorded
from hindcast.events.log.reader import read
from processes.run_witness import Witness
from processes.system import Home

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.broker, pytest.mark.browser]

RUN = "scaffolded"
SMALL = {
    "sites.products": "60",
    "curriculum.families": '["store/add_to_cart", "store/order_status"]',
    "curriculum.task_pool": "6",
    "curriculum.group_size": "4",
    "curriculum.max_running": "16",
    "learner.options.group_batch": "1",
    "learner.minibatches": "1",
    "learner.epochs": "1",
    "learner.options.rehearsal_episodes": "1",
}
"""Groups that differ soon, one of them to a batch."""


async def log_of(home: Home) -> list[Recorded]:
    async with open_run(RUN, home=home.folder).connect_log() as log:
        return [recorded async for recorded in read(log)]


def updates(home: Home) -> list[UpdateApplied]:
    return [r.fact for r in asyncio.run(log_of(home)) if isinstance(r.fact, UpdateApplied)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A run of the recipe. The learner is killed once it has learned something, and another goes on."""
    home = Home(tmp_path_factory.mktemp("home"))
    changed = [part for key, value in SMALL.items() for part in ("--set", f"{key}={value}")]
    process = home.start("--run", RUN, "--recipe", "laser", *changed)
    try:
        with Witness(home.folder, RUN) as witness:
            home.wait_for("a first update", lambda: witness.count("update.applied") >= 1)
            home.kill("learner.1")
            goal = witness.count("update.applied") + 2
            home.wait_for("two more updates", lambda: witness.count("update.applied") >= goal, timeout_s=600)
    finally:
        assert home.stop(process, signal.SIGINT) == 0
    return home


@pytest.fixture(scope="module")
def steps(home: Home) -> list[StepTaken]:
    return [r.fact for r in asyncio.run(log_of(home)) if isinstance(r.fact, StepTaken)]


def test_no_step_was_none_that_its_state_allows(steps: list[StepTaken]) -> None:
    assert len(steps) > 40
    results = Counter(step.result for step in steps)
    assert not {"parse_failure", "no_such_element"} & set(results), results
    assert all(step.action is not None for step in steps)
    states = {step.scaffold.state for step in steps if step.scaffold is not None}
    assert {"home", "results", "product", "orders"} <= states
    assert "" not in states, "every page that was met is one of the store's"


def test_each_token_is_one_of_those_it_was_drawn_from(steps: list[StepTaken]) -> None:
    forced = 0
    for step in steps:
        assert step.scaffold is not None
        assert step.scaffold.choices >= 1
        allowed = unpack_allowed(step.allowed)
        tokens, logprobs = unpack_ids(step.action_ids), unpack_floats(step.logprobs)
        assert allowed[np.arange(len(tokens)), tokens].all()
        alone = allowed.sum(axis=1) == 1
        assert (logprobs[alone] == 0).all()
        forced += int(alone.sum())
    assert forced


def test_the_learner_scores_under_the_sets_that_were_sampled_from(home: Home) -> None:
    """`mismatch_kl`: what sampler and learner disagree about at equal weights. Under the whole vocabulary it is far from 0."""
    found = [update.metrics["mismatch_kl"] for update in updates(home) if "mismatch_kl" in update.metrics]
    assert found
    assert max(map(abs, found)) < 1e-4


def test_the_run_verifies_is_audited_and_folds_again_to_the_same(home: Home) -> None:
    verified = home.json("verify", RUN, timeout_s=600)
    assert verified["identical"], verified
    assert verified["updates"] >= 3
    assert home.json("rebuild", RUN, timeout_s=300)["identical"]
    assert not home.json("audit", RUN, timeout_s=300)["defects"]


def test_constrained_answers_come_out_again_from_weights_prompt_seed_and_sets(home: Home) -> None:
    report = home.json("replay", "sampling", RUN, "--episodes", "6", timeout_s=400)
    assert report["answers"] >= 6
    assert (report["beyond"], report["not_drawn"], report["differing"]) == (0, 0, [])
    assert report["seeds_derived"] == report["answers"]


def test_the_read_model_says_which_state_was_seen(home: Home, steps: list[StepTaken]) -> None:
    shown = home.json("episode", "show", steps[0].episode, "--run", RUN)
    assert shown["steps"][0]["scaffold_state"] == "home"
    assert shown["steps"][0]["scaffold_choices"] > 5
