"""Recipes that begin with cloning, as their users meet them: processes killed, forked, verified, audited, rebuilt.

Hindsight learning beside a judge that the run trains, its fork that prefers demonstrations to failures, M-GRPO over groups.
"""

import asyncio
import re
import signal
from pathlib import Path

import pytest

from hindcast.app.runs.runs import open_run
from hindcast.events.catalogue import BatchPlanned, EpisodeRelabeled, UpdateApplied, WeightsPublished
from hindcast.events.envelope import Fact
from hindcast.events.log.reader import read
from processes.run_witness import Witness
from processes.system import SMALL, Home, settings

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800), pytest.mark.broker, pytest.mark.browser]

CLONED = {
    "curriculum.demonstrations": "4",
    "learner.cloning_updates": "1",
    "learner.cloning_batch": "4",
    "learner.minibatches": "1",
    "curriculum.max_running": "8",
}
HINDSIGHT = CLONED | {
    # the base policy can do one of them and not the other, so that there are successes and failures to tell apart
    "curriculum.families": '["store/order_status", "store/find_rating"]',
    "curriculum.group_size": "1",
    "learner.options.hsl_episodes": "4",
    "learner.options.hsl_batch": "4",
    "judge.judges": '["rules", "orm"]',
    "learner.orm_every": "4",
    "learner.orm_batch": "4",
    "learner.orm_epochs": "1",
    "learner.orm_held_out": "0",
}
GROUPS = CLONED | {"learner.options.group_batch": "1", "learner.epochs": "1"}


def facts_of(home: Home, run: str) -> list[Fact]:
    """Everything that a run's log holds."""

    async def main() -> list[Fact]:
        async with open_run(run, home=home.folder).connect_log() as log:
            return [recorded.fact async for recorded in read(log)]

    return asyncio.run(main())


def applied(home: Home, run: str) -> list[UpdateApplied]:
    """The updates in a run's log."""
    return [fact for fact in facts_of(home, run) if isinstance(fact, UpdateApplied)]


def holds(home: Home, run: str) -> None:
    """Every number comes out again, nothing is wrong with the log, and the tables follow from it."""
    report = home.json("verify", run, timeout_s=600)
    assert report["identical"], report["first_divergence"]
    assert report["updates"] == len(applied(home, run))
    is_sound(home, run)


def is_sound(home: Home, run: str) -> None:
    """`holds`, but for the numbers."""
    assert home.json("audit", run, timeout_s=600)["defects"] == []
    assert home.json("rebuild", run, timeout_s=600)["identical"]


def published(home: Home, model: str) -> int:
    """How many versions of a model the processes said that they published."""
    output = home.folder / "honcho.log"
    text = output.read_text(errors="replace") if output.exists() else ""
    return sum(
        "weights published" in line and re.search(rf"model\W+{model}\b", line) is not None
        for line in text.splitlines()
    )


def test_hindsight_learning_goes_on_after_an_interruption_beside_a_judge_and_into_pairs(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path)
    process = home.start("--run", "h", "--recipe", "hsl", *settings(HINDSIGHT, base=SMALL))
    home.wait_for("cloning", lambda: published(home, "policy") >= 1, timeout_s=600)
    home.kill("learner.1", "relabeler.1", "judge.1")
    home.wait_for(
        "both models", lambda: published(home, "policy") >= 2 and published(home, "orm") >= 1, timeout_s=600
    )
    assert home.stop(process, signal.SIGINT) == 0
    facts = facts_of(home, "h")
    planned = [fact for fact in facts if isinstance(fact, BatchPlanned)]
    assert [fact.algorithm for fact in planned if fact.model == "policy"][:2] == ["sft", "hsl"]
    assert {fact.model for fact in facts if isinstance(fact, WeightsPublished)} == {"policy", "orm"}
    assert any(not fact.failure for fact in facts if isinstance(fact, EpisodeRelabeled))
    is_sound(home, "h")
    learned = applied(home, "h")
    pairs = (
        "learner.algorithm=dpo",
        "learner.options.pair_batch=1",
        "learner.orm_every=0",
        'judge.judges=["rules"]',
        "relabeler.kind=",
    )
    home.json(
        "fork",
        "h",
        "--at",
        "end",
        "--exact",
        "--name",
        "d",
        *(part for one in pairs for part in ("--set", one)),
    )
    last = max(fact.update for fact in learned if fact.model == "policy")
    # one more than one: a batch that the parent was interrupted in is finished first
    goal = f"updates={last + 2}"
    assert home.json("start", "--run", "d", "--until", goal, timeout_s=600)["updates"] >= last + 2
    first = next(f for f in facts_of(home, "d") if isinstance(f, BatchPlanned) and f.algorithm == "dpo")
    assert [one.advantage for one in first.episodes] == [1.0, -1.0]
    assert first.reference_version == first.version, "what learning in hindsight led to"
    # its log begins as the parent's, to the end: what is computed again for it is for the parent
    assert applied(home, "d")[: len(learned)] == learned
    holds(home, "d")


def test_groups_after_cloning_go_on_after_the_learner_was_killed(tmp_path: Path) -> None:
    home = Home(tmp_path)
    process = home.start("--run", "r", "--recipe", "webagent_r1", *settings(GROUPS))
    home.wait_for("cloning", lambda: published(home, "policy") >= 1, timeout_s=600)
    home.kill("learner.1")
    with Witness(home.folder, "r") as witness:
        home.wait_for("an update by groups", lambda: witness.count("update.applied") >= 2, timeout_s=600)
    assert home.stop(process, signal.SIGINT) == 0
    planned = [fact for fact in facts_of(home, "r") if isinstance(fact, BatchPlanned)]
    assert [fact.algorithm for fact in planned][:2] == ["sft", "grpo"]
    assert planned[1].reference_version == 1, "what cloning led to"
    holds(home, "r")
