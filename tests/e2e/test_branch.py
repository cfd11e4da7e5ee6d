"""A recorded episode is continued from its steps, on real pages with the shipped policy."""

import asyncio
import json
import shutil
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from hindcast.actors.environments.store.tasks import StoreTasks
from hindcast.actors.episodes import attempt
from hindcast.actors.episodes.attempt import steps_before
from hindcast.actors.replay.recorded import NoSuchEpisode
from hindcast.app.cli import app
from hindcast.app.evaluation.branches import Branches, branch
from hindcast.app.evaluation.evaluation import plan_requests, play
from hindcast.app.runs.open_log import open_log
from hindcast.app.runs.runs import RunHandle, create_run, open_run
from hindcast.app.settings.configuration import resolve
from hindcast.core.errors import EnvironmentFailed, NoSuchPlace, SettingsError
from hindcast.core.models.folders import base_policy_folder
from hindcast.events.catalogue import BRANCH, BranchPoint, EpisodeJudged, EpisodeRequested, StepTaken
from hindcast.events.log.port import EventLog
from hindcast.learner.verify.verify import verify
from hindcast.storage.audit.audit import audit
from hindcast.storage.readmodel.episode_queries import branch_outcomes
from stories.home_run import events_of

pytestmark = [
    pytest.mark.broker,
    pytest.mark.torch,
    pytest.mark.browser,
    pytest.mark.timeout(600),
]

EPISODE = "ep_first"
OVERRIDES = [
    "actors.page_timeout_s=60",
    "actors.action_timeout_s=60",
    "actors.screenshots=off",
    "curriculum.environments=['store']",
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a run of one episode of the shipped policy."""
    folder = tmp_path_factory.mktemp("home")

    async def record() -> None:
        run = create_run(
            resolve(environment={}, folder=folder, overrides=OVERRIDES), home=folder, name="parent"
        )
        await open_log(run, None)
        settings = run.settings
        (request,) = plan_requests(
            StoreTasks(settings.sites),
            episodes=1,
            families=["buy"],
            temperature=1.0,
            lease_s=settings.episode_lease_s,
            first_seed=7,
        )
        request = msgspec.structs.replace(request, episode=EPISODE, group="g", origin="online")
        tally = await play([request], folder=base_policy_folder(), weights=None, settings=settings, run=run)
        assert tally.lost == 0, tally.lost_because

    asyncio.run(record())
    return folder


@pytest.fixture
def parent(home: Path, tmp_path: Path) -> RunHandle:
    shutil.copytree(home, tmp_path / "home", ignore=shutil.ignore_patterns("broker.json"))
    return open_run("parent", home=tmp_path / "home")


async def branched(parent: RunHandle, *steps: int, each: int = 3, version: int | None = None) -> Branches:
    return await branch(parent, EPISODE, steps=steps, each=each, version=version, name="branches")


async def test_continuations_repeat_the_steps_before_and_then_go_their_own_way(parent: RunHandle) -> None:
    before = await events_of(parent)
    recorded = [one.fact for one in before if isinstance(one.fact, StepTaken)]
    assert len(recorded) > 2
    found = await branched(parent, 0, 2)
    assert (found.run, found.parent, found.version) == ("branches", "parent", 0)
    assert [(one.step, one.continuations, one.lost) for one in found.values] == [(0, 3, {}), (2, 3, {})]
    verdict = next(one.fact for one in before if isinstance(one.fact, EpisodeJudged))
    assert found.outcome == verdict.judgment.outcome
    run = open_run("branches", home=parent.home)
    events = await events_of(run)
    requests = [one.fact for one in events[len(before) :] if isinstance(one.fact, EpisodeRequested)]
    assert {one.origin for one in requests} == {BRANCH}
    for request in requests:
        assert request.branch is not None
        steps = [
            one.fact
            for one in events
            if isinstance(one.fact, StepTaken) and one.fact.episode == request.episode
        ]
        shared = request.branch.step
        assert [one.observation_digest for one in steps[: shared + 1]] == [
            one.observation_digest for one in recorded[: shared + 1]
        ]
        assert [one.action_ids for one in steps[:shared]] == [one.action_ids for one in recorded[:shared]]
        assert steps[shared].sampling.seed != recorded[shared].sampling.seed
    assert [one.position for one in await events_of(parent)] == [one.position for one in before]
    async with run.connect_log() as log:
        assert (await audit(log, run.blobs)).defects == ()
        assert (await verify(log, run.blobs, policy=base_policy_folder())).identical


async def test_another_page_than_the_recorded_one_is_no_place_to_continue_from(
    parent: RunHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def altered(log: EventLog, branch: BranchPoint) -> list[StepTaken]:
        found = await steps_before(log, branch)
        found[1] = msgspec.structs.replace(found[1], observation_digest="another")
        return found

    monkeypatch.setattr(attempt, "steps_before", altered)
    (value,) = (await branched(parent, 2, each=1)).values
    assert value.continuations == 0
    (why,) = value.lost
    assert f"step 1 of {EPISODE} shows another page now than was recorded" in why


async def test_steps_that_the_log_does_not_hold_cannot_be_repeated(parent: RunHandle) -> None:
    events = await events_of(parent)
    after = next(one.position for one in events if isinstance(one.fact, StepTaken))
    async with parent.connect_log() as log:
        assert [one.index for one in await steps_before(log, BranchPoint(episode=EPISODE, step=1))] == [0, 1]
        for missing in (
            BranchPoint(episode="ep_other", step=0),
            BranchPoint(episode=EPISODE, step=0, after=events[-1].position),
        ):
            with pytest.raises(EnvironmentFailed, match=f"holds 0 steps of {missing.episode} after position"):
                await steps_before(log, missing)
        found = await steps_before(log, BranchPoint(episode=EPISODE, step=0, after=after - 1))
        assert [one.index for one in found] == [0]


async def test_what_cannot_be_continued_is_refused_in_words(parent: RunHandle) -> None:
    with pytest.raises(NoSuchPlace, match=f"episode {EPISODE} has no step 99"):
        await branched(parent, 99)
    with pytest.raises(NoSuchPlace, match="policy version 7 was not published"):
        await branched(parent, 0, version=7)
    with pytest.raises(NoSuchEpisode, match="ep_other"):
        await branch(parent, "ep_other", steps=(), each=1, version=None, name=None)


async def test_sites_that_do_not_begin_anew_are_refused(
    parent: RunHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StoreTasks, "resets", "none", raising=False)
    with pytest.raises(SettingsError, match="such as buying twice"):
        await branched(parent, 0)


def test_the_command_names_the_values_of_the_steps(
    parent: RunHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HINDCAST_HOME", str(parent.home))
    shown = CliRunner().invoke(
        app, ["branch", EPISODE, "parent", "--at", "1", "-n", "2", "--name", "b", "--json"]
    )
    assert shown.exit_code == 0, shown.output
    (value,) = json.loads(shown.stdout.strip().splitlines()[-1])[
        "values"
    ]  # above it stand the roles' own lines
    assert (value["step"], value["continuations"]) == (1, 2)
    listed = CliRunner().invoke(app, ["episode", "list", "b", "--origin", "branch", "--json"])
    assert listed.exit_code == 0, listed.output
    assert f"{EPISODE}_from_1_0" in listed.stdout
    with open_run("b", home=parent.home).read_model().reading() as connection:
        assert branch_outcomes(connection, EPISODE) == {1: (value["successes"], 2)}
        assert branch_outcomes(connection, "ep_other") == {}
