"""Evaluations as users meet them: from the first version to the last, across the death of the curriculum in one of them."""

import asyncio
import json
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from hindcast.app.runs.runs import open_run
from hindcast.events.catalogue import (
    BatchPlanned,
    ControlApplied,
    ControlRequested,
    EpisodeEnded,
    EpisodeRequested,
    EvaluationFinished,
    EvaluationStarted,
    RunFinished,
)
from hindcast.events.envelope import Recorded
from hindcast.events.log.reader import read
from processes.run_witness import Witness
from processes.system import Home, settings

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.broker, pytest.mark.browser]

TASKS = 8
EVALUATIONS = {"evaluation.every": "1", "evaluation.episodes": str(TASKS), "evaluation.max_running": "4"}


class Evaluated(NamedTuple):
    """A finite run with evaluations."""

    home: Home
    summary: dict[str, object]
    history: list[Recorded]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Evaluated:
    """Three versions; the curriculum is killed in the first evaluation."""
    home = Home(tmp_path_factory.mktemp("home"))
    process = home.start("--run", "measured", "--until", "updates=6", *settings(EVALUATIONS))
    try:
        with Witness(home.folder, "measured") as witness:
            home.wait_for("an episode of the first evaluation", lambda: witness.count("episode.ended") >= 1)
            assert witness.count("evaluation.finished") == 0
            home.kill("curriculum.1")
        output, _ = process.communicate(timeout=600)
    finally:
        if process.poll() is None:
            home.stop(process)
    assert process.returncode == 0, home.words()
    return Evaluated(home, json.loads(output.splitlines()[-1]), asyncio.run(recorded(home.folder)))


async def recorded(folder: Path) -> list[Recorded]:
    async with open_run("measured", home=folder).connect_log() as log:
        return [one async for one in read(log)]


def evaluations(history: list[Recorded]) -> list[tuple[Recorded, Recorded]]:
    """Start and end of each evaluation."""
    found = [one for one in history if isinstance(one.fact, EvaluationStarted | EvaluationFinished)]
    assert [type(one.fact) for one in found] == [EvaluationStarted, EvaluationFinished] * (len(found) // 2)
    return list(zip(found[::2], found[1::2], strict=True))


def test_the_first_and_the_last_version_are_evaluated_on_the_same_tasks(run: Evaluated) -> None:
    pairs = evaluations(run.history)
    started = [begun.fact for begun, _ in pairs if isinstance(begun.fact, EvaluationStarted)]
    assert (started[0].version, started[-1].version) == (0, 3)
    assert [one.number for one in started] == list(range(len(started)))
    assert len({one.tasks for one in started}) == 1
    assert len(started[0].tasks) == TASKS
    for _, over in pairs:
        assert isinstance(over.fact, EvaluationFinished)
        # on a busy machine the next version is due before the last verdict of an earlier one
        assert over.fact.reason == "" or (
            over is not pairs[-1][1] and re.search(r" and policy \d+ is to be evaluated$", over.fact.reason)
        )
        assert sum(one.successes + one.failures + one.lost for one in over.fact.results) == 2 * TASKS


def test_an_evaluation_survives_its_curriculum_without_playing_a_task_twice(run: Evaluated) -> None:
    begun, over = evaluations(run.history)[0]
    assert begun.envelope.incarnation != over.envelope.incarnation
    inside = [one.fact for one in run.history if begun.position < one.position < over.position]
    asked = [fact for fact in inside if isinstance(fact, EpisodeRequested) and fact.origin == "evaluation"]
    played = Counter((fact.task.name, fact.temperature) for fact in asked if fact.attempt == 0)
    assert set(played.values()) == {1}
    assert len(played) == 2 * TASKS


def test_evaluations_are_no_part_of_training(run: Evaluated) -> None:
    facts = [one.fact for one in run.history]
    requested = {fact.episode: fact for fact in facts if isinstance(fact, EpisodeRequested)}
    trained = {one.episode for fact in facts if isinstance(fact, BatchPlanned) for one in fact.episodes}
    assert trained
    assert {requested[episode].origin for episode in trained} == {"online"}
    ended = Counter(requested[fact.episode].origin for fact in facts if isinstance(fact, EpisodeEnded))
    assert run.summary["episodes"] == ended["online"]
    assert ended["evaluation"] >= 2 * 2 * TASKS


def test_the_run_ends_when_its_last_version_is_evaluated(run: Evaluated) -> None:
    kinds = (EvaluationStarted, EvaluationFinished, ControlApplied, RunFinished)
    last = [one for one in run.history if isinstance(one.fact, kinds)][-4:]
    # the drain may find any evaluation open: that of an earlier version ends first, that of the last one is played to its end
    assert [type(one.fact) for one in last] == list(kinds)
    asked = next(one.position for one in run.history if isinstance(one.fact, ControlRequested))
    begun, over, _, finished = last
    assert isinstance(begun.fact, EvaluationStarted)
    assert begun.fact.version == 3
    assert over.position > asked
    assert isinstance(finished.fact, RunFinished)
    assert finished.fact.reason == "updates=6"


def test_the_curve_is_shown(run: Evaluated) -> None:
    shown = run.home.json("run", "show", "measured")["evaluations"]
    assert [one["version"] for one in shown] == [
        begun.fact.version
        for begun, _ in evaluations(run.history)
        if isinstance(begun.fact, EvaluationStarted)
    ]
    assert [rate["temperature"] for rate in shown[-1]["rates"]] == [0.0, 1.4]
    assert {rate["judged"] + rate["lost"] for rate in shown[-1]["rates"]} == {TASKS}


def test_the_run_verifies_audits_and_folds_again(run: Evaluated) -> None:
    assert run.home.json("verify", "measured", timeout_s=600)["identical"]
    assert run.home.json("audit", "measured", timeout_s=600)["defects"] == []
    assert run.home.json("rebuild", "measured", timeout_s=600)["identical"]


def test_a_fork_inside_an_evaluation_plays_the_rest_of_it(run: Evaluated) -> None:
    begun, over = evaluations(run.history)[0]
    middle = (begun.position + over.position) // 2
    fork = run.home.json("fork", "measured", "--at", str(middle), "--name", "other")
    run.home.json("start", "--run", "other", "--until", "updates=2", timeout_s=600)
    shown = run.home.json("run", "show", "other")["evaluations"]
    assert shown[0]["number"] == 0
    assert shown[0]["state"] == "finished"
    assert {rate["judged"] + rate["lost"] for rate in shown[0]["rates"]} == {TASKS}
    assert fork["run"] == "other"
    assert run.home.json("audit", "other", timeout_s=600)["defects"] == []
    assert run.home.json("verify", "other", timeout_s=600)["identical"]
