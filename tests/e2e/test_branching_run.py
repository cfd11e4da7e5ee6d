"""The algorithm `branching` under the real command: continuations in real browsers are events of the run, which verifies."""

from pathlib import Path

import pytest

from hindcast.app.runs.runs import open_run
from hindcast.core.domain.arrays import unpack_positions
from hindcast.events.catalogue import BatchPlanned, EpisodeRequested, StepTaken
from processes.system import Home, settings
from stories.home_run import events_of

pytestmark = [
    pytest.mark.broker,
    pytest.mark.browser,
    pytest.mark.torch,
    pytest.mark.timeout(900),
    pytest.mark.slow,
]

TREES = {
    "learner.algorithm": "branching",
    "learner.options.group_batch": "1",
    "learner.minibatches": "1",
    "curriculum.families": '["store/buy", "store/add_to_cart"]',
    "curriculum.group_size": "3",
    "curriculum.branches": "2",
    "curriculum.branch_steps": "2",
    "evaluation.every": "0",
}


async def test_a_run_branches_its_own_episodes_and_trains_on_what_is_new(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    done = home.json("start", "trees", *settings(TREES), "--until", "updates=3", timeout_s=800)
    assert done["updates"] >= 3
    report = home.json("verify", "trees", timeout_s=300)
    assert report["identical"], report["first_divergence"]
    assert not home.json("audit", "trees")["defects"]
    events = await events_of(open_run("trees", home=home.folder))
    requests = {one.fact.episode: one.fact for one in events if isinstance(one.fact, EpisodeRequested)}
    assert {one.origin for one in requests.values()} == {"online"}
    steps = {one.position: one.fact for one in events if isinstance(one.fact, StepTaken)}
    pages = {(one.episode, one.index): one.observation_digest for one in steps.values()}
    answers = {(one.episode, one.index): one.action_ids for one in steps.values()}
    points = {one.episode: one.branch for one in requests.values() if one.branch is not None}
    continued = {name: point for name, point in points.items() if (name, point.step) in pages}
    assert continued, "none was continued"
    for name, point in continued.items():
        for index in range(point.step):
            assert answers[name, index] == answers[point.episode, index]
        assert pages[name, point.step] == pages[point.episode, point.step]
    plans = [one.fact for one in events if isinstance(one.fact, BatchPlanned)]
    trained_on = [steps[at] for one in plans for at in unpack_positions(one.positions).tolist()]
    assert any(step.episode in continued for step in trained_on)
    assert all(step.index >= points[step.episode].step for step in trained_on if step.episode in points)
    assert any(len(set(one.step_advantages or ())) > 1 for fact in plans for one in fact.episodes)
