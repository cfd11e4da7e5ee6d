"""A derived run: the parent's updates, computed again as if some of its episodes had never been trained on."""

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fakes.tiny_policy import write_tiny_policy
from hindcast.app.cli import app
from hindcast.app.runs.left_out import Choice, survey
from hindcast.app.runs.runs import RunHandle, open_run
from hindcast.app.runs.without import Derived, Plans, derive
from hindcast.core.domain.evidence import Judgment
from hindcast.core.errors import SettingsError
from hindcast.core.rl.advantages import group_advantages
from hindcast.events.catalogue import (
    BatchPlanned,
    DecisionKept,
    EpisodeJudged,
    EpisodeRequested,
    RunForked,
    SamplesSwept,
    UpdateApplied,
    UpdateSkipped,
    WeightsPublished,
)
from hindcast.events.catalogue.verdict import JudgeIdentity
from hindcast.events.envelope import Recorded
from hindcast.events.log.publisher import Publisher
from hindcast.learner.verify.verify import verify
from hindcast.storage.audit.audit import audit
from stories.home_run import events_of, learn, record, small_run
from stories.training_story import Member, Story, Told, informative

pytestmark = [pytest.mark.broker, pytest.mark.torch]

PARENT = "parent"
BOTH: Sequence[Plans] = ("again", "keep")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a run of four batches, with groups that agree and rehearsed successes; another judge judged all of it.

    One episode begins before all updates and ends before the last batch.
    """
    home = tmp_path_factory.mktemp("home")
    policy = write_tiny_policy(home / "policy")

    async def train() -> None:
        overrides = [
            "learner.checkpoint_every=1",
            "learner.epochs=2",
            "learner.options.rehearsal_episodes=1",
            "learner.options.rehearsal_memory=3",
        ]
        run = small_run(home, policy, name=PARENT, overrides=overrides)
        story = Story(policy)
        async with run.connect_log("admin"), run.connect_log("actor") as log:
            await record(run, [story.start(run.blobs, run.settings)])
            request, *attempt, verdict = Story(policy).group(Member(1.0, 3), name="long", seed=99)
            async with Publisher(
                log, producer="actor.1", code_rev="test", settings=run.settings.log
            ) as actor:
                await record(run, [request])
                await play(actor, attempt[:2])
                for batch in range(4):
                    facts: list[Told] = []
                    for steps in (1, 2):
                        facts += story.group(*informative(steps=steps, version=batch))
                    facts += story.group(*(Member(1.0, 1, version=batch) for _ in range(4)))
                    if batch == 3:
                        await play(actor, attempt[2:])
                        facts.append(verdict)
                    await record(run, facts)
                    await learn(run, until=4 * batch + 4)
            await record(run, [contrary(one.fact) for one in await events_of(run) if judged(one)])

    asyncio.run(train())
    return home


async def play(actor: Publisher, facts: Sequence[Told]) -> None:
    """Record a part of an episode by an actor that is not started anew."""
    for _, entity, fact in facts:
        await actor.publish(fact, entity=entity)
    await actor.commit()


def judged(recorded: Recorded) -> bool:
    return isinstance(recorded.fact, EpisodeJudged)


def contrary(fact: object) -> Told:
    """The other judge says the same, except of the third group's first two members."""
    assert isinstance(fact, EpisodeJudged)
    reward = fact.judgment.reward
    if fact.episode in ("ep_group_3_0", "ep_group_3_1"):
        reward = 1.0 - reward
    said = EpisodeJudged(
        episode=fact.episode,
        task_id=fact.task_id,
        judge=JudgeIdentity(name="strict", version="1"),
        judgment=Judgment(outcome="success" if reward else "failure", reward=reward, reason=""),
    )
    return Told("judge", f"{fact.episode}.strict", said)


@pytest.fixture
def parent(trained: Path, tmp_path: Path) -> RunHandle:
    shutil.copytree(trained, tmp_path / "home", ignore=shutil.ignore_patterns("broker.json"))
    return open_run(PARENT, home=tmp_path / "home")


async def derived(parent: RunHandle, choice: Choice, *, plans: Plans = "again", judge: str = "") -> Derived:
    async with parent.connect_log() as log:
        found = await survey(log, choice, judge=judge)
    return await derive(
        parent, found, choice, plans=plans, judge=judge, name=f"{plans}-run", said=lambda _: None
    )


async def verified(run: RunHandle) -> None:
    """The run verifies, and independent code finds nothing wrong with it."""
    async with run.connect_log() as log:
        report = await verify(log, run.blobs, policy=Path(run.settings.policy.base))
        assert report.identical, report.first_divergence
        checked = await audit(log, run.blobs)
    assert checked.defects == ()


def weights_of(recordeds: Sequence[Recorded]) -> dict[int, str]:
    facts = [one.fact for one in recordeds if isinstance(one.fact, WeightsPublished)]
    return {fact.version: fact.weights.sha256 for fact in facts}


def trained_on(recordeds: Sequence[Recorded]) -> set[str]:
    plans = [one.fact for one in recordeds if isinstance(one.fact, BatchPlanned)]
    return {episode.episode for plan in plans for episode in plan.episodes}


@pytest.mark.parametrize("plans", BOTH)
async def test_without_nothing_gives_the_parent_s_weights_bit_for_bit(
    parent: RunHandle, plans: Plans
) -> None:
    async with parent.connect_log():
        made = await derived(parent, Choice(), plans=plans)
        child = open_run(made.run, home=parent.home)
        before, own = await events_of(parent), await events_of(child)
        assert weights_of(own) == weights_of(before)
        assert (made.same_weights, made.compared_weights) == (4, 4)
        assert (made.batches, made.batches_then, made.updates) == (4, 4, 16)
        swept = [
            [set(one.fact.episodes) for one in log if isinstance(one.fact, SamplesSwept)]
            for log in (own, before)
        ]
        assert swept[0] == swept[1]
        await verified(child)


@pytest.mark.parametrize("plans", BOTH)
async def test_nothing_is_trained_on_what_is_left_out(parent: RunHandle, plans: Plans) -> None:
    """An episode of the second batch, whose success is rehearsed later."""
    async with parent.connect_log():
        made = await derived(parent, Choice(episodes=("ep_group_3_0",)), plans=plans)
        child = open_run(made.run, home=parent.home)
        before, own = await events_of(parent), await events_of(child)
        assert "ep_group_3_0" in trained_on(before)
        assert trained_on(before) - trained_on(own) == {"ep_group_3_0"}
        assert made.left_out == 1
        assert made.same_weights == 0
        assert made.compared_weights == 3
        assert weights_of(own)[1] == weights_of(before)[1]
        swept = [one.fact for one in own if isinstance(one.fact, SamplesSwept)]
        assert [fact.episodes for fact in swept if fact.reason == "withheld"] == [("ep_group_3_0",)]
        group = [
            one
            for recorded in own
            if isinstance(recorded.fact, BatchPlanned) and recorded.fact.batch == 1
            for one in recorded.fact.episodes[:7]
            if one.group == "group_3"
        ]
        assert [one.advantage for one in group] == group_advantages([0.0, 1.0, 0.0])
        await verified(child)


async def test_a_batch_with_nothing_left_keeps_the_numbers_of_versions(parent: RunHandle) -> None:
    async with parent.connect_log():
        groups = {"group_3", "group_4"}
        requested = [one.fact for one in await events_of(parent) if isinstance(one.fact, EpisodeRequested)]
        names = tuple(fact.episode for fact in requested if fact.group in groups)
        made = await derived(parent, Choice(episodes=names), plans="keep")
        child = open_run(made.run, home=parent.home)
        own = await events_of(child)
        weights = weights_of(own)
        assert weights.keys() == weights_of(await events_of(parent)).keys()
        rehearsed = [one for one in own if isinstance(one.fact, BatchPlanned)][1].fact
        assert isinstance(rehearsed, BatchPlanned)
        assert all(one.rehearsed for one in rehearsed.episodes)
        assert sum(isinstance(one.fact, DecisionKept) for one in own) >= 3
        await verified(child)


async def test_planning_again_waits_for_the_episodes_that_a_batch_lacks(parent: RunHandle) -> None:
    async with parent.connect_log():
        names = tuple(f"ep_group_3_{member}" for member in range(4))
        made = await derived(parent, Choice(episodes=names))
        own = await events_of(open_run(made.run, home=parent.home))
        plans = [one.fact for one in own if isinstance(one.fact, BatchPlanned)]
        assert (made.batches, made.batches_then) == (2, 3)
        assert {one.group for one in plans[1].episodes if not one.rehearsed} == {"group_4", "group_6"}
        assert made.version == 3
        assert made.parent_version == 4
        await verified(open_run(made.run, home=parent.home))


async def test_another_judge_s_verdicts_are_trained_on(parent: RunHandle) -> None:
    async with parent.connect_log():
        made = await derived(parent, Choice(), judge="strict")
        child = open_run(made.run, home=parent.home)
        before, own = await events_of(parent), await events_of(child)
        assert (made.left_out, made.rejudged) == (0, 2)
        assert child.settings.judge.judges[0] == "strict"
        rewards = {
            one.episode: one.reward
            for recorded in own
            if isinstance(recorded.fact, BatchPlanned)
            for one in recorded.fact.episodes
        }
        assert (rewards["ep_group_3_0"], rewards["ep_group_3_1"]) == (0.0, 1.0)
        assert weights_of(own)[1] == weights_of(before)[1]
        assert weights_of(own)[2] != weights_of(before)[2]
        await verified(child)


async def test_a_choice_that_fits_nothing_or_changes_nothing_is_refused(parent: RunHandle) -> None:
    async with parent.connect_log():
        with pytest.raises(
            SettingsError, match=r"run parent has no episode of 9, ep_nobody, store/buy\. Run: "
        ):
            await derived(parent, Choice(episodes=("ep_nobody",), families=("store/buy",), versions=(9,)))
        with pytest.raises(SettingsError, match=r"no verdict of 'lax' is in the log of run parent\. Run: "):
            await derived(parent, Choice(), judge="lax")
        with pytest.raises(SettingsError, match=r"was never trained on 1 episode \("):
            await derived(parent, Choice(episodes=("ep_group_2_0",)))
        assert not (parent.home / "runs" / "again-run").exists()


async def test_what_an_interrupted_attempt_left_is_not_built_upon(parent: RunHandle) -> None:
    class Stopped(Exception):
        pass

    def stop(_position: int) -> None:
        raise Stopped

    async with parent.connect_log():
        choice = Choice(episodes=("ep_group_3_0",))
        async with parent.connect_log() as log:
            found = await survey(log, choice, judge="")
        chosen = {"plans": "again", "judge": "", "said": lambda _: None}
        with pytest.raises(Stopped):
            await derive(parent, found, choice, name="first", progress=stop, **chosen)
        with pytest.raises(
            SettingsError, match=r"left a part of run first in the broker.* Choose another name"
        ):
            await derive(parent, found, choice, name="first", **chosen)
        made = await derive(parent, found, choice, name="second", **chosen)
        await verified(open_run(made.run, home=parent.home))


def test_the_command_says_what_became_of_the_updates(
    parent: RunHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HINDCAST_HOME", str(parent.home))
    asked = "select episode from episodes where episode like 'ep_group_3_%' order by episode limit 1"
    done = CliRunner().invoke(app, ["without", PARENT, "--query", asked, "--name", "less"])
    assert done.exit_code == 0, done.output
    assert "1 episode: query select episode" in done.output
    assert "0 of 3 versions, bit for bit" in done.output
    assert "Later episodes stay what they were" in done.output
    refused = CliRunner().invoke(app, ["start", "less", "--until", "updates=99"])
    assert "was derived from parent" in str(refused.exception), refused.output
    forked = CliRunner().invoke(app, ["fork", "less", "--name", "onward"])
    assert forked.exit_code == 0, forked.output
    begun = asyncio.run(events_of(open_run("onward", home=parent.home)))
    forks = [one.fact for one in begun if isinstance(one.fact, RunForked)]
    assert [fact.derived is not None for fact in forks] == [True, False]
    for words, why in (
        ([], "nothing is left out"),
        (["--check", "--family", "find"], "--check leaves out nothing"),
        (["--verdicts", "strict", "--plan", "keep"], "plans again"),
        (["--query", "select nothing from nowhere"], "docs/read-model.md"),
        (["--query", "delete from episodes returning episode"], "docs/read-model.md"),
    ):
        wrong = CliRunner().invoke(app, ["without", PARENT, *words])
        assert why in str(wrong.exception), words


def test_an_update_skipped_for_lack_of_samples_leaves_the_optimizer_as_it_is(parent: RunHandle) -> None:
    """Both groups of the second batch and what it rehearses are left out."""

    async def work() -> None:
        async with parent.connect_log():
            before = await events_of(parent)
            plan = [one.fact for one in before if isinstance(one.fact, BatchPlanned)][1]
            names = tuple(dict.fromkeys(one.episode for one in plan.episodes))
            made = await derived(parent, Choice(episodes=names), plans="keep")
            own = await events_of(open_run(made.run, home=parent.home))
            if made.at < [one.position for one in before if isinstance(one.fact, BatchPlanned)][1] - 1:
                pytest.fail("the first batch holds what the second rehearses: choose a later one")
            skipped = [one.fact for one in own if isinstance(one.fact, UpdateSkipped)]
            applied = [one.fact for one in own if isinstance(one.fact, UpdateApplied)]
            assert skipped
            assert applied
            await verified(open_run(made.run, home=parent.home))

    asyncio.run(work())
