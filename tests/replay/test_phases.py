"""Phases with a critic, on a log in memory with tiny real models: order of facts, crashes everywhere, what is replayed."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hindcast.core.domain.arrays import pack_floats, unpack_floats, unpack_positions
from hindcast.core.rl.values import blended_advantages
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import (
    BatchPlanned,
    CheckpointSaved,
    RecipeChanged,
    ReplayScored,
    UpdateApplied,
    WeightsPublished,
)
from hindcast.learner.batch_plan import minibatches_of, sweep
from hindcast.learner.verify.verify import verify
from stories.forged_log import audited
from stories.forging import all_of, forge, with_field
from stories.learner_story import Killed, Watched, die, facts_of, kinds
from stories.training_story import (
    RUN,
    Bench,
    Member,
    Told,
    bench,
    copy_of,
    events_of,
    folded,
    learn,
    settings_with,
    tell,
    what_was_learned,
)

pytestmark = pytest.mark.torch

PHASED = {
    "phase_episodes": 4,
    "minibatches": 2,
    "epochs": 1,
    "critic_epochs": 1,
    "critic_learning_rate": 1e-3,
    "learning_rate": 1e-3,
    "phase_replay": "successes",
    # the tiny policy is sure of nothing: what it is asked about lies far below the paper's window
    "phase_window": (1e-6, 1.0),
}


def phased(algorithm: str, **learner: Any) -> Settings:
    return settings_with(algorithm=algorithm, **{**PHASED, **learner})


async def phases(
    folder: Path, settings: Settings, *, count: int = 2, tasks: Sequence[int] | None = None
) -> Bench:
    """A log with the episodes of so many phases, each one of a task of its own; every other one succeeds."""
    made = await bench(folder, batches=0, settings=settings)
    for index in range(count * settings.learner.phase_episodes):
        member = Member(float(index % 2), 1 + index % 3)
        seed = None if tasks is None else tasks[index]
        await tell(made.log, made.story.group(member, seed=seed))
    return made


async def learned(made: Bench) -> list[Any]:
    """What was learned, scores included."""
    return [
        fact
        for recorded in await events_of(made.log)
        for fact in (
            [recorded.fact] if isinstance(recorded.fact, ReplayScored) else what_was_learned([recorded])
        )
    ]


async def test_a_phase_is_scored_then_the_critic_is_trained_then_the_policy(tmp_path: Path) -> None:
    made = await phases(tmp_path, phased("webrl"))
    await learn(made, until=4)
    found = await facts_of(made, BatchPlanned, ReplayScored, UpdateApplied, WeightsPublished)
    told = [getattr(fact, "model", "") + " " + type(fact).__name__ for fact in found]
    batch = ["BatchPlanned", "UpdateApplied", "UpdateApplied", "WeightsPublished"]
    phase = [f"{model} {kind}" for model in ("critic", "policy") for kind in batch]
    assert told == ["policy WeightsPublished", *phase, " ReplayScored", *phase]
    first, second, third, fourth = await facts_of(made, BatchPlanned)
    assert (second.version, second.reference_version, second.critic_version) == (0, 0, 1)
    assert (fourth.version, fourth.reference_version, fourth.critic_version) == (1, 1, 2)
    assert {one.episode for one in first.episodes} == {one.episode for one in second.episodes}
    replayed = {one.episode for one in fourth.episodes if one.kept is not None}
    assert replayed == {one.episode for one in second.episodes if one.reward > 0}
    assert {one.episode for one in third.episodes} == {one.episode for one in fourth.episodes}
    assert (await verify(made.log, made.blobs, policy=made.policy)).identical


async def test_advantages_follow_from_the_critic_just_trained(tmp_path: Path) -> None:
    made = await phases(tmp_path, phased("webrl", minibatches=1), count=1)
    await learn(made, until=1)
    critic, policy = await facts_of(made, UpdateApplied)
    assert (critic.model, policy.model) == ("critic", "policy")
    assert critic.metrics["value_mean"] == pytest.approx(0.5, abs=1e-6)
    assert np.abs(unpack_floats(critic.samples.advantages)) == pytest.approx(0.5, abs=1e-6)
    assert critic.metrics["auc"] == 0.5, "its head begins at zero: every state has the same value"
    assert critic.metrics["calibration"] == pytest.approx(abs(0.5 - critic.metrics["outcome_mean"]), abs=1e-6)
    advantages = unpack_floats(policy.samples.advantages)
    assert len(set(advantages.tolist())) > 2
    (plan,) = (one for one in await facts_of(made, BatchPlanned) if one.model == "policy")
    rewards = [one.reward for one in plan.episodes for _ in range(one.samples)]
    good = [a for a, reward in zip(advantages, rewards, strict=True) if reward > 0]
    bad = [a for a, reward in zip(advantages, rewards, strict=True) if reward == 0]
    assert min(good) > max(bad)


async def test_what_older_runs_did_not_report_is_compared_only_where_it_was_recorded(tmp_path: Path) -> None:
    made = await phases(tmp_path, phased("webrl", minibatches=1), count=1)
    await learn(made, until=1)
    (critic, _) = await all_of(made, UpdateApplied)
    metrics = critic.fact.metrics
    forge(
        made.log,
        critic.position,
        with_field(metrics={name: metrics[name] for name in metrics if name not in ("auc", "calibration")}),
        digests=True,
    )
    for tolerance in (None, 1e-6):
        assert (await verify(made.log, made.blobs, policy=made.policy, tolerance=tolerance)).identical
    forge(made.log, critic.position, with_field(metrics=metrics | {"auc": 0.75}), digests=True)
    found = (await verify(made.log, made.blobs, policy=made.policy)).first_divergence
    assert found is not None
    assert found.expected == "auc 0.75"


@pytest.mark.parametrize(
    ("algorithm", "learner"),
    [
        ("webrl", {"loss": "released", "advantage": "released", "critic_heads": "double"}),
        ("webrl", {"phase_replay": "all", "critic_replay": False, "epochs": 2, "critic_epochs": 2}),
        ("reinforce", {"phase_replay": "off"}),
        ("awr", {}),
        ("digirl", {"episode_share": 0.5, "critic_heads": "double", "minibatches": 1}),
    ],
    ids=str,
)
async def test_every_form_learns_and_verifies(
    tmp_path: Path, algorithm: str, learner: dict[str, Any]
) -> None:
    made = await phases(tmp_path, phased(algorithm, **learner))
    await learn(made, until=2)
    updates = [one for one in await facts_of(made, UpdateApplied) if one.model == "policy"]
    assert len({one.after for one in updates}) == 2
    assert (await verify(made.log, made.blobs, policy=made.policy)).identical


async def test_killed_after_any_event_both_models_resume_to_the_very_same_run(tmp_path: Path) -> None:
    settings = phased("webrl", keep_checkpoints=1, keep_weights=1, checkpoint_every=2)
    fresh = await phases(tmp_path / "fresh", settings)
    whole = await copy_of(fresh, tmp_path / "whole")
    await learn(whole, until=4)
    expected = await learned(whole)
    assert {"ReplayScored", "CheckpointSaved", "BlobReleased"} <= set(kinds(expected))
    for number in range(1, len(expected) + 1):
        cut = await copy_of(fresh, tmp_path / f"cut{number}")
        with pytest.raises(Killed):
            await learn(cut, log=Watched(cut.log, number, after=die))
        assert await learned(cut) == expected[:number]
        await learn(cut, until=4)
        assert await learned(cut) == expected, f"killed after event {number}"


@pytest.mark.parametrize(("saved", "packing"), [(1, "auxiliary.value_packs"), (2, "training.forward_passes")])
async def test_how_samples_are_packed_is_what_the_log_says_there_whoever_was_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saved: int, packing: str
) -> None:
    """Packing changes last bits: a recipe changed before states are valued, or what is replayed is scored, counts for both."""
    made = await phases(tmp_path, phased("webrl"))
    facts = {1: 6, 2: 11}[saved]  # up to the critic's checkpoint, and to the policy's after it
    with pytest.raises(Killed):
        await learn(made, log=Watched(made.log, facts, after=die))
    assert kinds(await learned(made))[-1] == "CheckpointSaved"
    change = RecipeChanged(author="me", reason="", changes={"learner": {"tokens_per_forward": 64}})
    await tell(made.log, [Told("change", RUN, change)])
    with pytest.raises(Killed):
        await learn(made, log=Watched(made.log, {1: 2, 2: 1}[saved], after=die))
    assert kinds(await learned(made))[-1] == {1: "UpdateApplied", 2: "ReplayScored"}[saved]
    module, _, name = packing.rpartition(".")
    plain, asked = getattr(importlib.import_module(f"hindcast.learner.{module}"), name), list[int]()

    def watched(samples: Any, *, tokens_per_forward: int, **others: Any) -> Any:
        asked.append(tokens_per_forward)
        return plain(samples, tokens_per_forward=tokens_per_forward, **others)

    monkeypatch.setattr(f"hindcast.learner.{packing}", watched)
    assert (await verify(made.log, made.blobs, policy=made.policy)).identical
    assert (asked[0], asked[-1]) == (256, 64)


async def test_a_checkpoint_holds_both_models(tmp_path: Path) -> None:
    made = await phases(tmp_path, phased("webrl"))
    await learn(made, until=3)
    assert [saved.batch for saved in await facts_of(made, CheckpointSaved)] == [0, 1, 2]
    report = await learn(made, until=4)
    assert report.recomputed == 1, "only the update after the newest checkpoint"
    for saved in (await all_of(made, CheckpointSaved))[1:]:
        report = await verify(made.log, made.blobs, policy=made.policy, since=saved.position)  # type: ignore[assignment]
        assert report.identical  # type: ignore[attr-defined]


async def test_of_each_task_the_first_success_is_replayed(tmp_path: Path) -> None:
    settings = phased("webrl")
    # one task in all: its successes are the second and the fourth episode
    made = await phases(tmp_path, settings, tasks=[7] * 8)
    await learn(made, until=4)
    plans = [one for one in await facts_of(made, BatchPlanned) if one.model == "policy"]
    assert {one.episode for one in plans[1].episodes if one.kept is not None} == {"ep_group_1_0"}
    state = await folded(made.log)
    assert [one.id for one in state.earlier.values()] == ["ep_group_1_0"]


async def test_replay_keeps_to_its_window_and_its_share(tmp_path: Path) -> None:
    wide = await phases(tmp_path / "wide", phased("webrl"))
    await learn(wide, until=4)
    (scored,) = await facts_of(wide, ReplayScored)
    positions = unpack_positions(scored.positions).tolist()
    sureness = dict(zip(positions, 1 / unpack_floats(scored.perplexities).astype(float), strict=True))
    ordered = sorted(sureness.values())
    # so that some of the steps lie below, some within and some above it
    window = (float(ordered[1] * 0.999), float(ordered[-2] * 1.001))
    inside = {position for position, one in sureness.items() if window[0] <= one <= window[1]}
    assert 0 < len(inside) < len(positions)
    narrow = await phases(tmp_path / "narrow", phased("webrl", phase_window=window))
    await learn(narrow, until=4)
    assert await kept_positions(narrow) == inside
    few = await phases(tmp_path / "few", phased("webrl", phase_replay_ratio=0.25))
    await learn(few, until=4)
    own = sum(1 + index % 3 for index in range(4, 8))
    assert len(await kept_positions(few)) == int(0.25 * own)


async def kept_positions(made: Bench) -> set[int]:
    """Positions of the steps of earlier phases that the last batch trains on."""
    plan = (await facts_of(made, BatchPlanned))[-1]
    positions = iter(unpack_positions(plan.positions).tolist())
    found = set()
    for planned in plan.episodes:
        own = [next(positions) for _ in range(planned.samples)]
        found |= {position for position, kept in zip(own, planned.kept or b"", strict=False) if kept}
    return found


async def test_a_phase_ends_with_the_policy_that_it_was_begun_with(tmp_path: Path) -> None:
    """As where another recipe trains the policy before the phase's own batch is planned."""
    made = await phases(tmp_path, phased("webrl"), count=1)
    with pytest.raises(Killed):
        await learn(made, log=Watched(made.log, 5, after=die))
    state = await folded(made.log)
    assert (state.auxiliary_model("critic").version, len(state.phase)) == (1, 4)
    weights = state.weights[0].weights
    other = WeightsPublished(version=1, model="policy", weights=weights, update=0)
    await tell(made.log, [Told("learner", "policy_v1", other)])
    assert (await folded(made.log)).phase == []


async def test_nothing_is_replayed_or_scored_where_it_is_off(tmp_path: Path) -> None:
    made = await phases(tmp_path, phased("webrl", phase_replay="off"))
    await learn(made, until=4)
    assert not await facts_of(made, ReplayScored)
    assert not (await folded(made.log)).earlier


async def test_an_old_episode_is_not_swept(tmp_path: Path) -> None:
    made = await phases(tmp_path, phased("webrl", max_staleness=0), count=3)
    await learn(made, until=6)
    plans = [one for one in await facts_of(made, BatchPlanned) if one.model == "policy"]
    assert [one.version for one in plans] == [0, 1, 2]  # all were sampled from version 0


async def test_another_score_than_the_policys_is_found_out(tmp_path: Path) -> None:
    made = await phases(tmp_path, phased("webrl"))
    await learn(made, until=4)
    (scored,) = await all_of(made, ReplayScored)
    numbers = unpack_floats(scored.fact.perplexities) * np.float32(1.001)  # type: ignore[attr-defined]
    forge(made.log, scored.position, with_field(perplexities=pack_floats(numbers)), digests=True)
    report = await verify(made.log, made.blobs, policy=made.policy)
    assert report.first_divergence is not None
    assert report.first_divergence.position == scored.position
    assert "perplexities" in report.first_divergence.expected


async def shown_first(folder: Path, settings: Settings) -> Bench:
    """Demonstrations, a failed one among them, and the episodes of two phases."""
    made = await bench(folder, batches=0, settings=settings)
    for reward in (1.0, 0.0, 1.0):
        await tell(made.log, made.story.group(Member(reward, 2, origin="demonstration")))
    for index in range(2 * settings.learner.phase_episodes):
        await tell(made.log, made.story.group(Member(float(index % 2), 1 + index % 3)))
    return made


@pytest.mark.parametrize("cloning_updates", [0, 2])
async def test_the_first_phase_replays_demonstrations_where_that_is_asked_for(
    tmp_path: Path, cloning_updates: int
) -> None:
    settings = phased("webrl", phase_demonstrations=True, cloning_updates=cloning_updates, cloning_batch=2)
    made = await shown_first(tmp_path, settings)
    await learn(made, until=cloning_updates + 4)
    plans = [one for one in await facts_of(made, BatchPlanned) if one.algorithm in ("webrl", "critic")]
    replayed = [{one.episode for one in plan.episodes if one.kept is not None} for plan in plans]
    good = {"ep_group_0_0", "ep_group_2_0"}
    assert replayed[:2] == [good, good], "critic and policy, and nothing else is of an earlier phase"
    assert replayed[3] == good | {"ep_group_4_0", "ep_group_6_0"}
    assert not {one.episode for plan in plans for one in plan.episodes if one.kept is None} & good
    assert (await verify(made.log, made.blobs, policy=made.policy)).identical
    assert not (await audited(made)).defects


async def test_demonstrations_are_remembered_however_late_their_verdict_comes(tmp_path: Path) -> None:
    made = await bench(tmp_path, batches=0, settings=phased("webrl", phase_demonstrations=True))
    told = made.story.group(Member(1.0, 2, origin="demonstration"))
    await tell(made.log, told[:-1])
    assert not sweep(await folded(made.log), phased("webrl", phase_demonstrations=True))
    await tell(made.log, told[-1:])
    state = await folded(made.log)
    assert [one.id for one in state.earlier.values()] == ["ep_group_0_0"]
    assert [one.reason for one in sweep(state, state.settings)] == ["past"]


@pytest.mark.parametrize("kind", ["ReplayScored", "BatchPlanned", "WeightsPublished"])
async def test_a_demonstration_judged_while_a_phase_is_under_way_is_replayed_from_the_next_one_on(
    tmp_path: Path, kind: str
) -> None:
    """From the scores on to the policy's plan: what has no score then cannot be in its window."""
    made = await shown_first(tmp_path / "made", phased("webrl", phase_demonstrations=True))
    whole = await copy_of(made, tmp_path / "whole")
    await learn(whole, until=1)
    number = 1 + kinds(await learned(whole)).index(kind, 1)  # the first are the base policy's weights
    with pytest.raises(Killed):
        await learn(made, log=Watched(made.log, number, after=die))
    assert kinds(await learned(made))[-1] == kind
    late = made.story.group(Member(1.0, 2, origin="demonstration"))
    await tell(made.log, late)
    await learn(made, until=4)
    plans = await facts_of(made, BatchPlanned)
    replayed = [{one.episode for one in plan.episodes if one.kept is not None} for plan in plans]
    assert ["ep_group_11_0" in names for names in replayed] == [kind == "ReplayScored"] * 2 + [True] * 2
    assert (await verify(made.log, made.blobs, policy=made.policy)).identical
    assert not (await audited(made)).defects


async def test_demonstrations_are_not_replayed_unasked(tmp_path: Path) -> None:
    made = await shown_first(tmp_path, phased("webrl", cloning_updates=2, cloning_batch=2))
    await learn(made, until=4)
    (plan,) = (one for one in await facts_of(made, BatchPlanned) if one.algorithm == "webrl")
    assert all(one.kept is None for one in plan.episodes)


async def test_advantages_can_rest_on_what_the_critic_said_before_it_learned_the_outcome(
    tmp_path: Path,
) -> None:
    settings = phased(
        "webrl", options={"phase_values": "first_seen"}, critic_epochs=3, critic_learning_rate=1e-2
    )
    fresh = await phases(tmp_path / "fresh", settings)
    made = await copy_of(fresh, tmp_path / "made")
    await learn(made, until=4)
    planned = {one.batch: one for one in await facts_of(made, BatchPlanned)}
    updates = await facts_of(made, UpdateApplied)
    first_batch = [one for one in updates if one.batch == 0]
    said: dict[int, float] = {}
    for one in first_batch:
        for position, outcome, apart in zip(*samples_of(planned[0], one), strict=True):
            said.setdefault(position, outcome - apart)
    # the very first mini-batch met a critic that knows nothing, so its states are worth one half to it
    early, *_ = samples_of(planned[0], first_batch[0])
    assert [said[position] for position in early] == pytest.approx([0.5] * len(early), abs=1e-6)
    for one in (one for one in updates if one.batch == 1):
        positions, _, advantages = samples_of(planned[1], one)
        expected = advantages_from(planned[1], one.minibatch, [said[position] for position in positions])
        assert advantages == pytest.approx(expected, abs=1e-5)
    assert (await verify(made.log, made.blobs, policy=made.policy)).identical
    whole = await learned(made)
    for number in (4, 6, 8):
        cut = await copy_of(fresh, tmp_path / f"cut{number}")
        with pytest.raises(Killed):
            await learn(cut, log=Watched(cut.log, number, after=die))
        await learn(cut, until=4)
        assert await learned(cut) == whole, f"killed after event {number}"


def samples_of(plan: BatchPlanned, update: UpdateApplied) -> tuple[list[int], list[float], list[float]]:
    """Positions, outcomes and recorded advantages of a mini-batch's samples."""
    part = minibatches_of(plan)[update.minibatch]
    positions = unpack_positions(plan.positions).tolist()[part.first_sample : part.end_sample]
    episodes = plan.episodes[part.first_episode : part.end_episode]
    outcomes = [one.reward for one in episodes for _ in range(one.samples)]
    return positions, outcomes, unpack_floats(update.samples.advantages).tolist()


def advantages_from(plan: BatchPlanned, minibatch: int, values: Sequence[float]) -> list[float]:
    """WebRL's advantages of a mini-batch from the values of its states."""
    part = minibatches_of(plan)[minibatch]
    left, found = iter(values), []
    for one in plan.episodes[part.first_episode : part.end_episode]:
        own = [next(left) for _ in range(one.samples)]
        found += blended_advantages(own, one.reward, blend=0.5, discount=1.0)
    return found
