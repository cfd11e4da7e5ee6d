"""A fork reads its parent's log up to where it was left, goes on under its own settings, and can be verified like any run."""

import asyncio
import json
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import select, update
from starlette.datastructures import QueryParams
from typer.testing import CliRunner

from fakes.tiny_policy import write_tiny_policy
from hindcast.actors.judges.base import Judge, Verdict, undecided
from hindcast.actors.judges.judged_episode import JudgedEpisode
from hindcast.actors.judges.plugin import JudgeContext, JudgePlugin
from hindcast.actors.queue_worker import author_key
from hindcast.app.cli import app
from hindcast.app.page.runs import OpenRuns, PageQuery
from hindcast.app.page.views.tables import settings
from hindcast.app.runs.archive import archive_source
from hindcast.app.runs.archive_source import ArchiveSource
from hindcast.app.runs.fork import ForkResult, fold_prefix, fork_run, settings_of_fork
from hindcast.app.runs.runs import RunHandle, open_run
from hindcast.app.settings.configuration import resolve
from hindcast.core.domain.evidence import Judgment
from hindcast.core.errors import CorruptEvent, ForeignLog, JudgeUnavailable, SettingsError
from hindcast.core.plugins import identify_plugin, load_plugin
from hindcast.core.rl.combined_state import CRITIC
from hindcast.events.catalogue import (
    BatchPlanned,
    BlobReleased,
    EpisodeAbandoned,
    EpisodeJudged,
    RunForked,
    UpdateApplied,
    WeightsPublished,
)
from hindcast.events.catalogue.run import RunStarted
from hindcast.events.catalogue.verdict import JudgeIdentity
from hindcast.events.envelope import BlobRef, Recorded
from hindcast.events.jetstream.accounts import LOG_ACCOUNT
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.reader import read
from hindcast.learner.buffer.state import AuxiliaryModelState, BufferState
from hindcast.learner.verify.verify import VerifyReport, verify
from hindcast.storage.blobs.store import BlobStore
from hindcast.storage.readmodel.comparison import common_position, compare_runs, settings_apart
from hindcast.storage.readmodel.rebuild import rebuild
from hindcast.storage.readmodel.run_queries import run_summary
from hindcast.storage.readmodel.tables import runs, updates
from stories.home_run import events_of, learn, record, small_run
from stories.training_story import Member, Story, informative

pytestmark = [pytest.mark.broker, pytest.mark.torch]

PARENT = "parent"
FAR, CONTRARY = f"{__name__}:PLUGGED_FAR", f"{__name__}:PLUGGED_CONTRARY"
"""Judges of this module, named as module:object; `plug_in` sets them."""


def plug_in(monkeypatch: pytest.MonkeyPatch, name: str, judge: Judge) -> None:
    """Let a name of this module stand for a judge."""

    @asynccontextmanager
    async def opened(context: JudgeContext) -> AsyncIterator[Judge]:
        yield judge

    monkeypatch.setitem(globals(), name.partition(":")[2], JudgePlugin(open=opened))
    for cached in (load_plugin, identify_plugin):
        cached.cache_clear()


async def told(run: RunHandle, story: Story, *groups: tuple[Member, ...], begin: bool = False) -> None:
    facts = [story.start(run.blobs, run.settings)] if begin else []
    facts += [fact for members in groups for fact in story.group(*members)]
    await record(run, facts)


async def verified(run: RunHandle) -> VerifyReport:
    async with run.connect_log() as log:
        return await verify(log, run.blobs, policy=Path(run.settings.policy.base))


async def fork(parent: RunHandle, at: int, name: str, *overrides: str) -> ForkResult:
    return await fork_run(parent, at=at, name=name, overrides=overrides, said=lambda _: None)


def position_of(recordeds: list[Recorded], kind: type, number: int) -> int:
    return [recorded for recorded in recordeds if isinstance(recorded.fact, kind)][number].position


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a run of three batches: two trained on, one told after them with a group under way."""
    home = tmp_path_factory.mktemp("home")
    policy = write_tiny_policy(home / "policy")

    async def train() -> None:
        overrides = [
            "learner.checkpoint_every=1",
            "learner.epochs=1", "learner.options.rehearsal_episodes=0", "learner.keep_weights=1", "learner.keep_checkpoints=1",
            "learner.keep_weights_every=1000",
        ]  # fmt: skip
        run = small_run(home, policy, name=PARENT, overrides=overrides)
        story = Story(policy)
        async with run.connect_log("admin"):
            await told(run, story, *(informative(steps=1 + i % 2) for i in range(4)), begin=True)
            await learn(run, until=4)
            await told(run, story, *(informative(steps=2, version=2) for _ in range(2)))
            await learn(run, until=6)

    asyncio.run(train())
    return home


@pytest.fixture
def parent(trained: Path, tmp_path: Path) -> RunHandle:
    shutil.copytree(trained, tmp_path / "home", ignore=shutil.ignore_patterns("broker.json"))
    return open_run(PARENT, home=tmp_path / "home")


async def test_a_fork_goes_on_from_an_update_under_another_setting_and_verifies(parent: RunHandle) -> None:
    async with parent.connect_log():
        before = await events_of(parent)
        at = position_of(before, UpdateApplied, 2)
        made = await fork(parent, at, "colder", "learner.options.kl_coefficient=0.5")
        child = open_run("colder", home=parent.home)
        assert made.update == 3
        assert made.changed == {
            "learner.options.kl_coefficient": (parent.settings.learner.options["kl_coefficient"], 0.5)
        }
        assert (await learn(child, until=4)).updates == 4
        story = Story(Path(child.settings.policy.base), seed=9)
        story.groups = 100
        await told(child, story, *(informative(steps=2, version=2) for _ in range(2)))
        assert (await learn(child, until=6)).updates == 6
        own = await events_of(child)
        assert [r.digest for r in own[:at]] == [r.digest for r in before[:at]]
        assert {r.envelope.run for r in own[at:]} == {"colder"}
        assert await events_of(parent) == before
        report = await verified(child)
        assert report.identical
        assert report.updates == 6
        theirs = [r.fact for r in before if isinstance(r.fact, UpdateApplied)]
        ours = [r.fact for r in own if isinstance(r.fact, UpdateApplied)]
        assert [u.after for u in ours[:3]] == [u.after for u in theirs[:3]]
        assert ours[3].after == theirs[3].after, "the batch under way keeps the settings it was planned under"
        assert ours[4].after != theirs[4].after


async def test_every_place_of_a_log_can_be_forked_and_verifies(parent: RunHandle) -> None:
    """Between any two events: in a group, in a batch, before the first update, at the end."""
    async with parent.connect_log():
        events = await events_of(parent)
        kinds = [RunStarted, BatchPlanned, EpisodeJudged]
        places = {position_of(events, kind, 0) for kind in kinds} | {7, 30, len(events) - 1, len(events)}
        for at in sorted(places):
            made = await fork(parent, at, f"at{at}")
            child = open_run(f"at{at}", home=parent.home)
            await learn(child, until=made.update + 1 if made.update in (1, 3, 5) else made.update)
            assert (await verified(child)).identical, at


async def test_what_was_under_way_is_ended_and_judged_by_the_fork(parent: RunHandle) -> None:
    async with parent.connect_log():
        events = await events_of(parent)
        unjudged = next(r for r in events if isinstance(r.fact, EpisodeJudged))
        made = await fork(parent, unjudged.position - 1, "early")
        own = (await events_of(open_run("early", home=parent.home)))[unjudged.position - 1 :]
        assert isinstance(own[0].fact, RunForked)
        abandoned = [r.fact for r in own if isinstance(r.fact, EpisodeAbandoned)]
        judged = [r.fact for r in own if isinstance(r.fact, EpisodeJudged)]
        assert len(abandoned) == made.abandoned == 3
        assert {fact.reason for fact in abandoned} == {"forked"}
        assert isinstance(unjudged.fact, EpisodeJudged)
        assert [fact.episode for fact in judged] == [unjudged.fact.episode]


def own_blobs(run: RunHandle) -> BlobStore:
    """What lies in a run's own folder."""
    return BlobStore(run.folder / "blobs")


async def kept_by(run: RunHandle) -> list[BlobRef]:
    """What a run's log says is kept, but for pages."""
    async with run.connect_log() as log:
        end = (await log.identity()).last
        state = (await fold_prefix(log, at=end)).buffer
    saved = [one.blob for one in state.checkpoints] + [p.weights for p in state.weights.values()]
    return saved + [one.blob for kept in state.snapshots.values() for one in kept]


def test_the_heads_of_a_critic_that_was_trained_stay_as_they_are(parent: RunHandle) -> None:
    state, chosen = BufferState(), ["learner.critic_heads=double"]
    state.resolved = parent.settings.model_dump(mode="json")
    assert settings_of_fork(state, chosen, recipe="mgrpo", here={}).settings.learner.critic_heads == "double"
    state.models[CRITIC] = AuxiliaryModelState(updates=1)
    with pytest.raises(SettingsError, match="fork before the critic's first update"):
        settings_of_fork(state, chosen, recipe="mgrpo", here={})


def test_a_fork_of_an_old_run_computes_as_that_run_did(parent: RunHandle) -> None:
    """Else its learner could not read the parent's checkpoints, nor repeat the parent's last updates."""
    state = BufferState()
    state.resolved = parent.settings.model_dump(mode="json")
    for name in ("arithmetic", "shared_prefixes", "precision", "device"):
        del state.resolved["learner"][name]
    found = settings_of_fork(state, ["learner.learning_rate=1e-5"], recipe="mgrpo", here={}).settings.learner
    assert (found.arithmetic, found.shared_prefixes, found.precision, found.device) == (
        1,
        False,
        "float32",
        "cpu",
    )
    with pytest.raises(SettingsError, match=r"learner\.arithmetic: a fork has its parent's"):
        settings_of_fork(state, ["learner.arithmetic=2"], recipe="mgrpo", here={})


@pytest.mark.parametrize(("before", "after"), [("sft", "webagent_r1"), ("mgrpo", "webrl"), ("webrl", "hsl")])
def test_a_fork_into_another_recipe_has_its_values_and_what_was_chosen_for_the_parent(
    before: str, after: str
) -> None:
    own = ["curriculum.task_pool=7", "learner.learning_rate=3e-4"]
    state, chosen = BufferState(), ["learner.fresh_optimizer=true"]
    state.resolved = resolve(overrides=own, recipe=before, environment={}).settings.model_dump(mode="json")
    found = settings_of_fork(state, chosen, recipe=before, into=after, here={})
    whole = resolve(overrides=["curriculum.task_pool=7", *chosen], recipe=after, environment={})
    assert found.recipe == after
    assert found.settings == whole.settings
    assert found.settings.learner.learning_rate != 3e-4, "every recipe here names a rate"
    with pytest.raises(SettingsError, match="there is no recipe 'webagent'"):
        settings_of_fork(state, [], recipe=before, into="webagent", here={})


async def test_a_fork_into_another_recipe_begins_under_its_name_with_the_parents_weights(
    parent: RunHandle,
) -> None:
    async with parent.connect_log():
        await fork_run(parent, at=12, name="rl", overrides=[], recipe="webrl", said=lambda _: None)
        child = open_run("rl", home=parent.home)
        facts = [recorded.fact for recorded in await events_of(child)]
    (begun,) = [fact.start for fact in facts if isinstance(fact, RunForked)]
    assert begun is not None
    assert (child.recipe, begun.recipe) == ("webrl", "webrl")
    assert begun.settings["learner"]["algorithm"] == "webrl"
    (started,) = [fact for fact in facts if isinstance(fact, RunStarted)]
    assert begun.base_policy == started.base_policy


async def test_models_beside_the_policy_are_kept_too_or_said_to_be_gone(parent: RunHandle) -> None:
    held = WeightsPublished(version=2, model=CRITIC, weights=parent.blobs.put(b"held"), update=4)
    gone = WeightsPublished(version=1, model=CRITIC, weights=BlobRef("0" * 64, 4), update=2)
    async with parent.connect_log("learner") as log:
        async with Publisher(
            log, producer="learner.2", code_rev="", settings=parent.settings.log
        ) as publisher:
            for fact in (gone, held):
                at = await publisher.decide(fact, entity=f"critic_v{fact.version}")
        await fork(parent, at, "beside")
        child = open_run("beside", home=parent.home)
        assert own_blobs(child).has(held.weights)
        said = [r.fact.blob for r in await events_of(child) if isinstance(r.fact, BlobReleased)]
        assert gone.weights in said


async def test_what_the_log_of_a_fork_says_is_kept_is_in_its_own_folder(parent: RunHandle) -> None:
    """What the parent had let go of by then is let go of by the fork's first facts, once."""
    async with parent.connect_log():
        events = await events_of(parent)
        for at in (
            12,
            position_of(events, BatchPlanned, 1),
            position_of(events, UpdateApplied, 3),
            len(events),
        ):
            await fork(parent, at, f"at{at}")
            child = open_run(f"at{at}", home=parent.home)
            kept = await kept_by(child)
            assert all(own_blobs(child).has(ref) for ref in kept), at
            said = [r.fact for r in (await events_of(child))[at:] if isinstance(r.fact, BlobReleased)]
            async with parent.connect_log() as log:
                then = (await fold_prefix(log, at=at)).buffer
            assert len(said) == sum(not parent.blobs.has(saved.blob) for saved in then.checkpoints)
            (child.folder / "settings.toml").unlink()  # written last: as if killed before
            await fork(parent, at, f"at{at}")
            assert [r.fact for r in (await events_of(child))[at:] if isinstance(r.fact, BlobReleased)] == said
        assert said == []
        old = open_run(f"at{position_of(events, BatchPlanned, 1)}", home=parent.home)
        assert any(
            isinstance(r.fact, BlobReleased) for r in await events_of(old) if r.envelope.run == old.name
        )
        assert (await verified(old)).identical


async def test_damaged_weights_are_not_taken_over_but_computed_again(parent: RunHandle) -> None:
    async with parent.connect_log():
        events = await events_of(parent)
        newest = [r.fact for r in events if isinstance(r.fact, WeightsPublished)][-1]
        path = parent.blobs.path(newest.weights)
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
        await fork(parent, len(events), "whole")
        assert own_blobs(open_run("whole", home=parent.home)).get(newest.weights)


async def test_weights_that_the_parent_let_go_of_are_computed_again(parent: RunHandle) -> None:
    async with parent.connect_log():
        events = await events_of(parent)
        at = position_of(events, BatchPlanned, 1)
        made = await fork(parent, at, "old")
        assert made.version == 1
        assert made.recomputed == 2
        child = open_run("old", home=parent.home)
        shutil.rmtree(parent.folder / "blobs")
        assert (await learn(child, until=4)).updates == 4


async def test_a_fork_of_a_fork_reads_three_logs_as_one(parent: RunHandle) -> None:
    async with parent.connect_log():
        first = await fork(parent, position_of(await events_of(parent), UpdateApplied, 1), "one")
        one = open_run("one", home=parent.home)
        await learn(one, until=3)
        end = len(await events_of(one))
        await fork(one, end, "two", "learner.learning_rate=0.001")
        await fork(one, first.at, "three")
        two, three = (open_run(name, home=parent.home) for name in ("two", "three"))
        await learn(two, until=4)
        report = await verified(two)
        assert report.identical
        assert report.updates == 4
        async with two.connect_log() as log:
            assert [(a.run, a.until) for a in log.lineage] == [(PARENT, first.at), ("one", end)]
        async with three.connect_log() as log:
            assert [(a.run, a.until) for a in log.lineage] == [(PARENT, first.at)]
        assert (await verified(three)).identical


async def test_an_archive_can_be_forked_where_its_run_is_not(parent: RunHandle, tmp_path: Path) -> None:
    async with parent.connect_log():
        await fork(parent, position_of(await events_of(parent), UpdateApplied, 1), "one")
        one = open_run("one", home=parent.home)
        await learn(one, until=3)
        folder = tmp_path / "archive"
        await archive_source(
            one, folder, follow=False, pages=True, on_event=lambda *_: None, on_blob=lambda _: None
        )
        events = await events_of(one)
    elsewhere = tmp_path / "elsewhere"
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("HINDCAST_HOME", str(elsewhere))
        for at, lineage in ((len(events), [PARENT, "one"]), (20, [PARENT])):
            await fork_run(ArchiveSource(folder), at=at, name=f"at{at}", overrides=[], said=lambda _: None)
            child = open_run(f"at{at}", home=elsewhere)
            async with child.connect_log() as log:
                assert [ancestor.run for ancestor in log.lineage] == lineage
        with pytest.raises(SettingsError, match="cannot be named 'parent'"):
            await fork_run(ArchiveSource(folder), at=20, name=PARENT, overrides=[], said=lambda _: None)
        child = open_run(f"at{len(events)}", home=elsewhere)
        assert (await learn(child, until=4)).updates == 4
        report = await verified(child)
    assert report.identical
    assert report.updates == 4


async def test_a_forks_tables_are_those_of_its_whole_log(parent: RunHandle) -> None:
    async with parent.connect_log():
        at = position_of(await events_of(parent), UpdateApplied, 3)
        await fork(parent, at, "tables", "learner.options.kl_coefficient=0.5")
        child = open_run("tables", home=parent.home)
        async with child.connect_log() as log:
            assert (await rebuild(log, child.database_url)).identical
        model = child.read_model()
        try:
            with model.reading() as connection:
                now, then = run_summary(connection), run_summary(connection, as_of=at)
        finally:
            model.close()
        assert (now.run, now.parent, now.forked_at, now.updates) == ("tables", PARENT, at, 4)
        assert (then.run, then.parent) == (PARENT, None)


async def test_a_fork_is_compared_with_its_parent(parent: RunHandle) -> None:
    async with parent.connect_log():
        at = position_of(await events_of(parent), UpdateApplied, 3)
        await fork(parent, at, "other", "learner.options.kl_coefficient=0.5")
        child = open_run("other", home=parent.home)
        story = Story(Path(child.settings.policy.base), seed=9)
        story.groups = 100
        await told(child, story, *(informative(steps=2, version=2) for _ in range(2)))
        await learn(child, until=6)
        for run in (parent, child):
            async with run.connect_log() as log:
                await rebuild(log, run.database_url)
    model = parent.read_model()
    with model.writing() as connection:
        text = connection.scalar(select(runs.c.settings))
        older = json.loads(str(text))
        del older["storage"]["snapshot_events"]
        connection.execute(update(runs).values(settings=json.dumps(older)))
    model.close()
    models = parent.read_model(), child.read_model()
    try:
        with models[0].reading() as left, models[1].reading() as right:
            found = compare_runs(left, right)
            swapped = compare_runs(right, left)
            query = PageQuery(
                runs=OpenRuns(parent.home),
                run=child,
                connection=right,
                position=models[1].position(),
                parts={},
                query=QueryParams(),
            )
            page = settings(query)
        for model in models:  # as of a model too large for a digest at every update
            with model.writing() as connection:
                connection.execute(update(updates).values(before="", after=""))
        with models[0].reading() as left, models[1].reading() as right:
            without_digests = compare_runs(left, right)
    finally:
        for model in models:
            model.close()
    assert (found.left, found.right, found.parted_at) == (PARENT, "other", at)
    assert [s.key for s in found.settings] == ["learner.options.kl_coefficient"], (
        "not what the parent's code did not know"
    )
    own = child.settings.learner.options["kl_coefficient"]
    theirs = parent.settings.learner.options["kl_coefficient"]
    assert page.parent == PARENT
    assert [(s.key, s.parent, s.here) for s in page.of_fork] == [
        ("learner.options.kl_coefficient", json.dumps(theirs), json.dumps(own))
    ]
    assert [(s.update, s.same) for s in found.updates] == [(5, False), (6, False)]
    assert without_digests.updates == found.updates
    assert all(s.left and s.right and s.left["loss"] != s.right["loss"] for s in found.updates)
    points = {p.version: p for p in found.success}
    assert points[0].shared
    assert points[0].gain is None
    assert not points[2].shared
    assert points[2].gain is not None
    assert points[2].gain[1] < 0 < points[2].gain[2]
    assert swapped.parted_at == at


def by_command(parent: RunHandle, name: str, *words: str) -> tuple[dict[str, Any], str]:
    """What `hindcast fork` makes at update 3, and what it explains."""
    chosen = [
        "--at",
        "update=3",
        "--name",
        name,
        "--set",
        "learner.options.kl_coefficient=0.5",
        "--json",
        *words,
    ]
    done = CliRunner().invoke(app, ["fork", PARENT, *chosen])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


async def learn_and_fold(run: RunHandle, *, until: int) -> list[Recorded]:
    async with run.connect_log() as log:
        await learn(run, until=until)
        await rebuild(log, run.database_url)
        return [recorded async for recorded in read(log)]


def test_a_fork_inside_a_batch_begins_before_the_batch_unless_asked(
    parent: RunHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its first updates would be the parent's, and the comparison would have nothing to show."""
    monkeypatch.setenv("HINDCAST_HOME", str(parent.home))
    before = asyncio.run(learn_and_fold(parent, until=6))
    planned, asked = position_of(before, BatchPlanned, 1), position_of(before, UpdateApplied, 2)
    made, explained = by_command(parent, "edge")
    assert (made["at"], made["update"]) == (planned - 1, 2)
    assert f"position {asked} lies inside batch 1, with 1 of its 2 updates of policy done" in explained
    asyncio.run(learn_and_fold(open_run("edge", home=parent.home), until=4))
    compared = CliRunner().invoke(app, ["run", "compare", "edge"]).output
    assert "No update since" not in compared
    assert re.search(r"^ +4 ", compared, re.MULTILINE), compared

    made, explained = by_command(parent, "inside", "--exact")
    assert (made["at"], made["update"]) == (asked, 3)
    assert "the parent's settings hold for the other 1" in explained
    asyncio.run(learn_and_fold(open_run("inside", home=parent.home), until=4))
    compared = CliRunner().invoke(app, ["run", "compare", "inside"]).output
    assert "No update since" not in compared
    assert "gave both runs the same weights, not listed: 1" in compared


async def test_forks_of_one_run_are_compared_from_where_the_first_was_left(parent: RunHandle) -> None:
    """What both have from their common parent is no difference between them, nor twice the evidence."""
    async with parent.connect_log():
        at = position_of(await events_of(parent), UpdateApplied, 3)
        places = {"first": at, "second": at + 3, "third": at, "of-second": at + 4}
        for name, place in places.items():
            await fork(open_run("second" if name == "of-second" else PARENT, home=parent.home), place, name)
            run = open_run(name, home=parent.home)
            async with run.connect_log() as log:
                await rebuild(log, run.database_url)
    expected = {("first", "second"): at, ("first", "third"): at, ("second", "of-second"): at + 4}
    expected |= {("of-second", "third"): at, ("second", "second"): None}
    for pair, parted_at in expected.items():
        models = [open_run(name, home=parent.home).read_model() for name in pair]
        try:
            with models[0].reading() as left, models[1].reading() as right:
                found = compare_runs(left, right)
        finally:
            for model in models:
                model.close()
        assert found.parted_at == parted_at, pair
        assert parted_at is None or all(point.shared and point.gain is None for point in found.success)
    models = [open_run(name, home=parent.home).read_model() for name in places]
    with ExitStack() as stack:
        connections = [stack.enter_context(model.reading()) for model in models]
        assert common_position(connections) == at
        assert common_position([connections[1], connections[3]]) == at + 4
        assert settings_apart(connections) == {}
    for model in models:
        model.close()


def test_a_read_model_in_a_file_is_the_parents_alone(parent: RunHandle) -> None:
    """Else the fork's projector would find its parent's tables there and refuse; servers have a schema for each."""
    state = BufferState()
    for url, expected in (("sqlite:////some/file", ""), ("postgresql://host/db", "postgresql://host/db")):
        state.resolved = parent.settings.model_dump(mode="json")
        state.resolved["storage"]["database"] = url
        for chosen, database in ((), expected), (("storage.database=sqlite:////own",), "sqlite:////own"):
            found = settings_of_fork(state, chosen, recipe="mgrpo", here={})
            assert found.settings.storage.database == database


async def test_a_fork_is_refused_where_the_parents_log_is_another_one(parent: RunHandle) -> None:
    """The parent's run was made again under the same name."""
    async with parent.connect_log():
        await fork(parent, 12, "orphan")
    shutil.rmtree(parent.home / "broker" / "jetstream" / LOG_ACCOUNT / "streams" / f"RUN_{PARENT}")
    async with parent.connect_log("admin"):
        story = Story(Path(parent.settings.policy.base), seed=77)
        await told(parent, story, informative(), begin=True)
        child = open_run("orphan", home=parent.home)
        with pytest.raises((ForeignLog, CorruptEvent)):
            await learn(child, until=1)
        assert not (await verified(child)).identical


@pytest.mark.parametrize(
    ("at", "overrides", "said"),
    [
        (9999, [], "cannot be forked at position 9999"),
        (5, ["policy.base=other"], "a fork has its parent's"),
        (5, ["learner.learning_rate=-1"], "learner.learning_rate"),
        (5, ["learner.nothing=1"], "there is no setting"),
    ],
)
async def test_a_fork_that_cannot_be_is_explained_and_leaves_nothing(
    parent: RunHandle, at: int, overrides: list[str], said: str
) -> None:
    async with parent.connect_log():
        with pytest.raises((SettingsError, ForeignLog), match=said):
            await fork(parent, at, "never", *overrides)
    assert not (parent.home / "runs" / "never").exists()


async def test_an_interrupted_fork_is_finished_by_the_same_command(parent: RunHandle) -> None:
    async with parent.connect_log():
        await fork(parent, 12, "again")
        (parent.home / "runs" / "again" / "settings.toml").unlink()  # written last: as if killed before
        before = len(await events_of(open_run(PARENT, home=parent.home)))
        await fork(parent, 12, "again")
        child = open_run("again", home=parent.home)
        own = [r for r in await events_of(child) if r.envelope.run == "again"]
        assert sum(isinstance(r.fact, RunForked) for r in own) == 1
        assert before == len(await events_of(parent))
        (parent.home / "runs" / "again" / "settings.toml").unlink()
        with pytest.raises(ForeignLog, match="Choose another"):
            await fork(parent, 13, "again")
        with pytest.raises(SettingsError, match="Choose another"):
            await fork(parent, 12, "again", "learner.options.kl_coefficient=0.5")


class OutOfReach:
    """A judge that asks somebody who is away until `back`."""

    identity = JudgeIdentity(name=FAR, version="1")
    asks_model = True

    def __init__(self) -> None:
        self.back = False
        self.asked = 0

    async def judge(self, episode: JudgedEpisode) -> Verdict:
        self.asked += 1
        if not self.back:
            return undecided("outage: nobody there", may_pass=True)
        return Verdict(judgment=Judgment(outcome="failure", reward=0.0, reason="it says so"))


async def test_an_outage_of_the_forks_judge_is_no_verdict_and_the_same_command_goes_on(
    parent: RunHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = OutOfReach()
    plug_in(monkeypatch, FAR, far)
    monkeypatch.setattr("hindcast.app.runs.fork.OUTAGE_PAUSES_S", (0.0, 0.0, 0.0))
    async with parent.connect_log():
        story = Story(Path(parent.settings.policy.base), seed=11)
        story.groups = 200
        await told(parent, story, informative(steps=2, version=3))
        end = (await events_of(parent))[-1].position
        with pytest.raises(JudgeUnavailable, match="outage: nobody there"):
            await fork(parent, end, "later", f'judge.judges=["{FAR}"]')
        assert far.asked == 4
        far.back = True
        made = await fork(parent, end, "later", f'judge.judges=["{FAR}"]')
        history = await events_of(open_run("later", home=parent.home))
        said = [
            r.fact.judgment.outcome
            for r in history
            if isinstance(r.fact, EpisodeJudged) and r.fact.judge == far.identity
        ]
        assert said == ["failure"] * made.judged != []


class Contrary:
    """A judge that says the opposite of what the story's judge says; it is asked after `saved` was."""

    identity = JudgeIdentity(name=CONTRARY, version="1")
    asks_model = False

    def __init__(self, rewards: dict[str, float]) -> None:
        self._rewards = rewards
        self.asked: list[str] = []

    async def judge(self, episode: JudgedEpisode) -> Verdict:
        name = str(episode.evidence.answer)
        self.asked.append(name)
        return Verdict(judgment=self.of(name))

    def of(self, episode: str) -> Judgment:
        reward = 1.0 - self._rewards[episode]
        return Judgment(outcome="success" if reward else "failure", reward=reward, reason="on the contrary")


async def test_a_fork_that_names_another_judge_goes_by_its_verdicts_on_all_that_is_not_used_up(
    parent: RunHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two groups are in hand. Of one the other judge's verdicts stand in the parent already, of the other it is asked."""
    async with parent.connect_log():
        story = Story(Path(parent.settings.policy.base), seed=11)
        story.groups = 200
        await told(parent, story, informative(steps=2, version=3), informative(steps=2, version=3))
        history = await events_of(parent)
        judged = [r.fact for r in history if isinstance(r.fact, EpisodeJudged)][-8:]
        contrary = Contrary({fact.episode: fact.judgment.reward for fact in judged})
        saved = [fact for fact in judged if "group_200" in fact.episode]
        assert len(saved) == 4
        async with (
            parent.connect_log("judge") as log,
            Publisher(
                log, producer="judge.rejudge", code_rev="test", settings=parent.settings.log
            ) as publisher,
        ):
            for fact in saved:
                again = msgspec.structs.replace(
                    fact, judge=contrary.identity, judgment=contrary.of(fact.episode)
                )
                await publisher.decide(again, entity=author_key(fact.episode, contrary.identity))
        plug_in(monkeypatch, CONTRARY, contrary)
        end = (await events_of(parent))[-1].position
        made = await fork(parent, end, "otherwise", f'judge.judges=["{CONTRARY}"]')
        child = open_run("otherwise", home=parent.home)
        assert made.judged == 4
        assert not set(contrary.asked) & {fact.episode for fact in saved}
        await learn(child, until=8)
        batch = [r.fact for r in await events_of(child) if isinstance(r.fact, BatchPlanned)][-1]
        assert isinstance(batch, BatchPlanned)
        assert {planned.episode: planned.reward for planned in batch.episodes} == {
            fact.episode: 1.0 - fact.judgment.reward for fact in judged
        }
        assert (await verified(child)).identical
