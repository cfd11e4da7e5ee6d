"""kill -9 and SIGSTOP of every role at random in one running system: nothing is lost, nothing happens twice, verify holds.

15 faults by default, so that every role is killed once and stopped once. `HINDCAST_FAULTS=100` is the nightly size, and
`HINDCAST_FAULT_SEED=N` another schedule, or the one that failed. Recovery times are printed (`pytest -s`).
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise

import pytest

from hindcast.app.runs.runs import open_run
from hindcast.core.domain.arrays import unpack_ids, unpack_positions
from hindcast.events.catalogue import (
    BatchPlanned,
    EpisodeAbandoned,
    EpisodeCancelled,
    EpisodeEnded,
    EpisodeJudged,
    EpisodeRequested,
    EpisodeStarted,
    StepTaken,
    UpdateApplied,
    UpdateSkipped,
)
from hindcast.events.envelope import Recorded
from hindcast.events.log.reader import read
from processes.fault_schedule import KINDS, ROLES, schedule
from processes.fault_trial import Trial
from processes.run_witness import Witness
from processes.system import ROOT, Home, settings

FAULTS = int(os.environ.get("HINDCAST_FAULTS", "15"))
SEED = int(os.environ.get("HINDCAST_FAULT_SEED", "1"))
RUN = "faults"
CHANGES = {
    "actors.contexts": "3",
    "curriculum.max_running": "8",
    "curriculum.lease_s": "40",
    "actors.episode_timeout_s": "30",
    "log.append_timeout_s": "30",
}
"""Few at once, so that a slow machine ends its episodes within a lease that a stop can outlast."""
PATIENCE_S = 600.0
"""For what takes seconds where nothing else runs."""
LEARNING = ("batch.planned", "update.applied", "weights.published", "checkpoint.saved")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800 + 60 * FAULTS), pytest.mark.broker]


class Outcome:
    """What became of a run that went through the schedule and was then brought to a goal."""

    def __init__(self, home: Home, witness: Witness, trials: list[Trial], goal: int) -> None:
        self.home = home
        self.witness = witness
        self.trials = trials
        self.goal = goal
        self.log = asyncio.run(everything(home))
        self.facts = [recorded.fact for recorded in self.log]


async def everything(home: Home) -> list[Recorded]:
    async with open_run(RUN, home=home.folder).connect_log() as log:
        return [recorded async for recorded in read(log)]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    home = Home(tmp_path_factory.mktemp("home"))
    print(f"\nthis schedule again: HINDCAST_FAULTS={FAULTS} HINDCAST_FAULT_SEED={SEED}")
    process = home.start("--run", RUN, *settings(CHANGES))
    trials: list[Trial] = []
    with Witness(home.folder, RUN) as witness:
        try:
            home.wait_for("a first update", lambda: witness.count("update.applied") >= 1)
            print("role        fault           ready     works", flush=True)
            for fault in schedule(SEED, FAULTS):
                time.sleep(fault.after_s)
                for trial in trials:
                    if trial.fault.role == fault.role:
                        trial.join()
                trials.append(Trial(home, witness, fault, run=RUN))
            for trial in trials:
                trial.join()
            print(
                "role        fault           ready     works", *(trial.line() for trial in trials), sep="\n"
            )
            usurp(home, witness)
            applied = witness.count("update.applied")
            home.wait_for(
                "an update after all that",
                lambda: witness.count("update.applied") > applied,
                timeout_s=PATIENCE_S,
            )
        finally:
            assert home.stop(process) == 0
    goal = max(r.fact.update for r in asyncio.run(everything(home)) if isinstance(r.fact, UpdateApplied)) + 1
    summary = home.json("start", "--run", RUN, "--until", f"updates={goal}", timeout_s=2 * PATIENCE_S)
    assert summary["updates"] == goal
    return Outcome(home, witness, trials, goal)


def usurp(home: Home, witness: Witness) -> None:
    """A learner stands still, another takes over, trains and dies; the first goes on: it must be fenced off."""
    home.wait_for("learner.1 at work", lambda: home.is_ready("learner.1"))
    first, restarts = home.pid("learner.1"), home.restarts("learner.1")
    os.kill(first, signal.SIGSTOP)
    other = subprocess.Popen(
        [sys.executable, "-m", "hindcast.app.system.worker", "learner", "learner.2"],
        cwd=ROOT,
        env=home.environment,
    )
    try:
        trained = lambda: any(s.producer == "learner.2" and s.type in LEARNING for s in witness.sights)  # noqa: E731
        home.wait_for("something that the other learner did", trained, timeout_s=PATIENCE_S)
    finally:
        other.kill()
        other.wait()
        os.kill(first, signal.SIGCONT)
    home.wait_for(
        "the first learner's end", lambda: home.restarts("learner.1") > restarts, timeout_s=PATIENCE_S
    )


def test_every_role_works_again_after_every_fault(outcome: Outcome) -> None:
    assert [trial.line() for trial in outcome.trials if trial.ready_s is None or trial.work_s is None] == []
    if len(ROLES) * len(KINDS) <= FAULTS:
        assert {(t.fault.role, t.fault.kind) for t in outcome.trials} == {
            (role, kind) for role in ROLES for kind in KINDS
        }


def test_no_event_that_was_ever_seen_is_lost_or_changed(outcome: Outcome) -> None:
    assert outcome.witness.failure is None
    stored = {recorded.position: recorded.digest for recorded in outcome.log}
    assert len(outcome.witness.sights) > 100
    assert [s.position for s in outcome.witness.sights if stored.get(s.position) != s.digest] == []
    assert all(two.position - one.position == 1 for one, two in pairwise(outcome.witness.sights))


def test_every_requested_episode_has_one_end_and_none_is_requested_started_or_stepped_twice(
    outcome: Outcome,
) -> None:
    facts = outcome.facts
    requested = Counter(fact.episode for fact in facts if isinstance(fact, EpisodeRequested))
    ends = Counter(
        fact.episode for fact in facts if isinstance(fact, EpisodeEnded | EpisodeAbandoned | EpisodeCancelled)
    )
    assert set(requested.values()) == {1}
    assert ends == requested
    started = Counter(fact.episode for fact in facts if isinstance(fact, EpisodeStarted))
    assert set(started.values()) == {1}
    steps = Counter((fact.episode, fact.index) for fact in facts if isinstance(fact, StepTaken))
    assert set(steps.values()) == {1}


def test_every_verdict_is_given_once(outcome: Outcome) -> None:
    judged = Counter((f.episode, f.judge.name) for f in outcome.facts if isinstance(f, EpisodeJudged))
    ended = {fact.episode for fact in outcome.facts if isinstance(fact, EpisodeEnded)}
    assert set(judged.values()) == {1}
    assert {episode for episode, _ in judged} <= ended
    missing = ended - {episode for episode, _ in judged}
    assert len(missing) <= 8, "only what ended while the system stopped may wait for its verdict"


def test_what_was_trained_is_what_the_plans_say_each_group_in_one_batch(outcome: Outcome) -> None:
    plans = {fact.batch: fact for fact in outcome.facts if isinstance(fact, BatchPlanned)}
    assert sorted(plans) == list(range(len(plans)))
    assert len(plans) == sum(isinstance(fact, BatchPlanned) for fact in outcome.facts)
    updates = [fact for fact in outcome.facts if isinstance(fact, UpdateApplied)]
    assert [fact.update for fact in updates] == list(range(1, outcome.goal + 1))
    done = Counter(
        (fact.batch, fact.minibatch)
        for fact in outcome.facts
        if isinstance(fact, UpdateApplied | UpdateSkipped)
    )
    assert set(done.values()) == {1}
    planned: Counter[int] = Counter()
    trained: Counter[int] = Counter()
    compared: set[int] = set()
    epochs = open_run(RUN, home=outcome.home.folder).settings.learner.epochs
    steps = {r.position for r in outcome.log if isinstance(r.fact, StepTaken)}
    for plan in plans.values():
        positions = unpack_positions(plan.positions).tolist()
        rehearsed = [episode.rehearsed for episode in plan.episodes for _ in range(episode.samples)]
        own = Counter(at for at, old in zip(positions, rehearsed, strict=True) if not old)
        assert set(own.values()) == {epochs}
        assert not compared & own.keys(), "a group is compared once"
        compared |= own.keys()
        first = 0
        for minibatch, size in enumerate(unpack_ids(plan.minibatches).tolist()):
            part = positions[first : first + size]
            first += size
            if (plan.batch, minibatch) in done:
                planned.update(part)
        assert first == len(positions)
    for update in updates:
        plan = plans[update.batch]
        sizes = unpack_ids(plan.minibatches).tolist()
        begin = sum(sizes[: update.minibatch])
        count = len(update.samples.weights) // 4
        assert count == sizes[update.minibatch]
        trained.update(unpack_positions(plan.positions).tolist()[begin : begin + count])
    assert trained
    assert trained <= planned
    assert set(planned) <= steps


def test_verify_and_rebuild_come_out_identical(outcome: Outcome) -> None:
    report = outcome.home.json("verify", RUN, timeout_s=PATIENCE_S)
    assert (report["identical"], report["updates"]) == (True, outcome.goal)
    assert outcome.home.json("rebuild", RUN, timeout_s=PATIENCE_S)["identical"]
