"""`hindcast bench async`: what lock-step means, shown with the real curriculum and the real planning, and the pace of a
run."""

from collections.abc import AsyncIterator
from random import Random

import pytest

from bench.asynchrony import LOCK_STEP, Pace, fold_pace
from hindcast.app.settings.configuration import resolve
from hindcast.events.envelope import Recorded
from stories.curriculum_story import SECOND, Story, settings_of


def told(*, eta: int, batches: int, seed: int = 3) -> Story:
    """A run in which everything that may be requested is, and whatever runs goes on while a batch is trained on."""
    random = Random(seed)
    story = Story(settings_of(learner={"max_staleness": eta}, curriculum={"max_running": 16}))
    running: list[str] = []
    while story.state.version < batches:
        running += [request.episode for request in story.request()]
        assert running, "a run that waits for itself"
        story.now_ns += SECOND
        episode = running.pop(0)
        story.start(episode)
        story.end(episode)
        story.judge(episode, random.choice(["success", "failure"]))
        if (planned := story.plan()) is not None:
            begun = [request.episode for request in story.request()]
            for one in begun:
                story.start(one)
            running += begun
            if eta == 0:
                assert not running, "in lock-step nobody acts while a batch is trained on"
            story.now_ns += SECOND
            story.train(planned)
            if eta == 0:
                requests = story.request()
                assert {request.min_version for request in requests} == {story.state.version}
                running += [request.episode for request in requests]
    return story


async def events(story: Story) -> AsyncIterator[Recorded]:
    for recorded in story.history:
        yield recorded


@pytest.mark.parametrize("seed", range(6))
async def test_without_staleness_the_same_code_acts_stops_trains_and_acts_again(seed: int) -> None:
    story = told(eta=0, batches=5, seed=seed)
    pace = await fold_pace(events(story), updates=10)
    assert (pace.updates, pace.overlapped) == (10, 0)


async def test_with_staleness_episodes_are_begun_while_a_batch_is_trained_on() -> None:
    story = told(eta=2, batches=5)
    pace = await fold_pace(events(story), updates=10)
    assert pace.done
    assert pace.overlapped > 0


async def test_time_runs_from_the_first_request_to_the_last_update_asked_for() -> None:
    story = Story(settings_of())
    story.now_ns = 100 * SECOND
    requested = [request.episode for request in story.request()]
    for number, episode in enumerate(requested):
        story.now_ns += SECOND
        story.end(episode)
        story.judge(episode, "success" if number % 2 else "failure")
    planned = story.plan()
    assert planned is not None
    story.now_ns = 150 * SECOND
    story.train(planned)
    pace = await fold_pace(events(story), updates=2)
    assert (pace.wall_s, pace.episodes, pace.updates) == (50.0, len(requested), 2)
    assert not (await fold_pace(events(story), updates=3)).done
    assert "50 s" in pace.describe()


def test_the_bound_is_what_remains_when_the_shorter_half_is_hidden() -> None:
    pace = Pace(wanted=1, began_ns=0, ended_ns=int(60e9), learning_ms=20_000.0)
    assert pace.bound == pytest.approx(60 / 40)
    pace.learning_ms = 50_000.0
    assert pace.bound == pytest.approx(60 / 50)


def test_nothing_counts_after_the_last_update() -> None:
    story = told(eta=2, batches=3)
    pace = Pace(wanted=2)
    for recorded in story.history:
        pace.apply(recorded)
    assert pace.updates == 2
    assert pace.ended_ns < story.now_ns


def test_lock_step_differs_from_the_recipe_in_one_setting() -> None:
    recipe, lock_step = (resolve(environment={}, overrides=one).settings for one in ((), LOCK_STEP))
    assert recipe.learner.max_staleness > 0
    assert lock_step == recipe.model_copy(
        update={"learner": recipe.learner.model_copy(update={"max_staleness": 0})}
    )
