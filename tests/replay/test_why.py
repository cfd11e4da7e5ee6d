"""An update taken apart by the steps that it was computed from."""

import asyncio
import json
import shutil
from contextlib import aclosing
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fakes.tiny_policy import write_tiny_policy
from hindcast.app.cli import app
from hindcast.app.runs.runs import RunHandle, open_run
from hindcast.app.runs.why import FamilyQuestion, explain
from hindcast.core.errors import NoSuchPlace, ReplayDiverged, SettingsError
from hindcast.events.catalogue import BatchPlanned, StepTaken, UpdateApplied
from hindcast.events.log.places import parse_place
from hindcast.events.log.reader import read
from hindcast.learner.batch_plan import minibatches_of
from hindcast.learner.buffer.records import sample_of
from hindcast.learner.explanation import ExplainedTraining, Inquiry, ProbeStep
from hindcast.learner.verify.verify import verify
from stories.home_run import events_of, learn, record, small_run
from stories.training_story import Story, informative

pytestmark = [pytest.mark.broker, pytest.mark.torch]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two batches of two epochs, with steps small enough that a first-order estimate holds."""
    folder = tmp_path_factory.mktemp("home")
    policy = write_tiny_policy(folder / "policy")

    async def train() -> None:
        overrides = ["learner.learning_rate=1e-5", "learner.epochs=2", "learner.warmup_updates=1"]
        run = small_run(folder, policy, name="moved", overrides=[*overrides, "learner.checkpoint_every=1"])
        story = Story(policy)
        async with run.connect_log("admin"):
            facts = [story.start(run.blobs, run.settings)]
            for steps in (1, 2, 3, 2):
                facts += story.group(*informative(steps=steps))
            await record(run, facts)
            await learn(run, until=8)

    asyncio.run(train())
    return folder


@pytest.fixture
def run(home: Path, tmp_path: Path) -> RunHandle:
    shutil.copytree(home, tmp_path / "home", ignore=shutil.ignore_patterns("broker.json"))
    return open_run("moved", home=tmp_path / "home")


async def test_the_shares_of_an_update_s_steps_sum_to_one(run: RunHandle) -> None:
    found = await explain(run, parse_place("update=6"))
    assert (found.first_update, found.last_update, found.first_version) == (6, 6, 1)
    assert sum(one.share for one in found.episodes) == pytest.approx(1, abs=1e-4)
    assert found.recomputed == 2, "from the checkpoint of update 4"
    recordeds = await events_of(run)
    plan = [one.fact for one in recordeds if isinstance(one.fact, BatchPlanned)][1]
    part = minibatches_of(plan)[1]
    planned = {one.episode: one for one in plan.episodes[part.first_episode : part.end_episode]}
    assert {one.episode for one in found.episodes} == planned.keys()
    for one in found.episodes:
        assert one.advantage == pytest.approx(planned[one.episode].advantage)
        assert len(one.steps) == planned[one.episode].samples
    steps = {one.position: one.fact for one in recordeds if isinstance(one.fact, StepTaken)}
    assert all(
        (steps[step.position].episode, steps[step.position].index) == (one.episode, step.step)
        for one in found.episodes
        for step in one.steps
    )


async def test_a_version_is_explained_by_all_of_its_updates(run: RunHandle) -> None:
    found = await explain(run, parse_place("policy=last"))
    assert (found.first_update, found.last_update) == (5, 8)
    assert sum(one.share for one in found.episodes) == pytest.approx(1, abs=1e-4)
    assert len({one.episode for one in found.episodes}) == len(found.episodes)
    assert sum(not one.rehearsed for one in found.episodes) == 8
    assert (await explain(run, parse_place("batch=1"))).episodes == found.episodes


async def test_tokens_are_listed_by_how_much_their_probability_changed(run: RunHandle) -> None:
    found = await explain(run, parse_place("policy=1"))
    apart = [abs(one.after - one.before) for one in found.tokens]
    assert apart == sorted(apart, reverse=True)
    assert apart[0] > 0
    assert all(0 < one.before < 1 for one in found.tokens)


async def test_pulls_predict_what_an_update_does_to_the_probe_s_reward(run: RunHandle) -> None:
    """At the first update AdamW has no momentum of earlier ones, so the estimate is the whole first-order change."""
    async with run.connect_log() as log:
        async with aclosing(read(log, after=0, strict=True)) as recordeds:
            events = [one async for one in recordeds]
        steps = [sample_of(one, one.fact) for one in events if isinstance(one.fact, StepTaken)]
        position = next(one.position for one in events if isinstance(one.fact, UpdateApplied))
        probe = [ProbeStep(one, (-1) ** place / 10) for place, one in enumerate(steps[:12])]
        inquiry = Inquiry(range(1, 2), probe=probe)
        report = await verify(
            log,
            run.blobs,
            policy=Path(run.settings.policy.base),
            only=[(position, position)],
            make_trainer=partial(ExplainedTraining, inquiry=inquiry),
        )
    assert report.identical
    assert report.updates == 1
    found = sum(
        one.weight * float((after - before).sum(dtype="float64"))
        for one, before, after in zip(probe, inquiry.before, inquiry.after, strict=True)
    )
    predicted = sum(one.pull or 0.0 for one in inquiry.steps)
    assert abs(found) > 1e-4
    assert predicted == pytest.approx(found, rel=0.05)


async def test_a_family_is_judged_by_its_own_episodes(run: RunHandle) -> None:
    found = await explain(run, FamilyQuestion(family="find"))
    assert (found.first_update, found.last_update, found.probe_origin) == (1, 8, "training")
    assert found.probe_episodes == 16
    assert [(one.version, one.successes, one.episodes) for one in found.success] == [(0, 8, 16)]
    assert found.episodes[0].pull is not None
    assert abs(found.episodes[0].pull) == max(abs(one.pull or 0) for one in found.episodes)


async def test_questions_that_have_no_answer_say_what_there_is(run: RunHandle) -> None:
    for place, says in (
        ("update=99", "its last one is 8"),
        ("policy=7", "the last one is 2"),
        ("batch=5", "batch 5 of run moved trained no policy"),
        ("checkpoint=4", "give update=N"),
    ):
        with pytest.raises(NoSuchPlace, match=says):
            await explain(run, parse_place(place))
    with pytest.raises(SettingsError, match="there are: store/find"):
        await explain(run, FamilyQuestion(family="store/buy"))
    with pytest.raises(SettingsError, match=r"the 0 judged episodes of find that versions 1 to 2 played"):
        await explain(run, FamilyQuestion(family="find", since=1))
    with pytest.raises(NoSuchPlace, match="lies between"):
        await explain(run, FamilyQuestion(family="find", since=2, until=1))


async def test_updates_that_do_not_come_out_as_recorded_are_not_explained(
    run: RunHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = ExplainedTraining.step

    def altered(self: ExplainedTraining, index: int) -> object:
        self._settings = self._settings.model_copy(update={"learning_rate": 2e-5})
        return true(self, index)

    monkeypatch.setattr(ExplainedTraining, "step", altered)
    with pytest.raises(ReplayDiverged, match="does not come out as recorded"):
        await explain(run, parse_place("update=6"))


def test_the_command_names_the_steps_and_how_to_go_on(
    run: RunHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HINDCAST_HOME", str(run.home))
    told = CliRunner().invoke(app, ["why", "policy=1", "moved"])
    assert told.exit_code == 0, told.output
    assert "store/find" in told.output
    assert "all shares sum to 100 %" in told.output
    assert "Next: hindcast episode show ep_group_" in told.output
    shown = CliRunner().invoke(app, ["why", "find", "moved", "--json"])
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.stdout)["family"] == "find"
    refused = CliRunner().invoke(app, ["why", "policy=1", "moved", "--since", "1"])
    assert "--since and --until belong" in str(refused.exception)
