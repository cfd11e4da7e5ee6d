"""A run with replayed successes: killed anywhere, verified to the bit, audited, and forged in every way it could be."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fakes.tiny_policy import write_tiny_policy
from hindcast.events.catalogue import BatchPlanned, UpdateApplied
from hindcast.events.log.memory import MemoryLog
from hindcast.learner.verify.verify import verify
from hindcast.storage.blobs.store import BlobStore
from stories.forged_log import audited, forge, positions
from stories.learner_story import Killed, Watched, die
from stories.training_story import (
    Bench,
    Member,
    Story,
    copy_of,
    events_of,
    folded,
    informative,
    learn,
    settings_with,
    tell,
    what_was_learned,
)

pytestmark = pytest.mark.torch

SETTINGS = settings_with(
    group_batch=1,
    minibatches=2,
    kl_coefficient=0,
    clip_high=0.3,
    dual_clip=3,
    format_penalty=1.0,
    success_replay="random",
    keep_checkpoints=1,
    keep_weights=1,
)
FAILED = (Member(0.0, 1), Member(0.0, 2, unparsable=True), Member(0.0, 1), Member(0.0, 1))


@pytest.fixture(scope="module")
def half_way(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """One batch trained, whose successes are in store; two groups of the same task, and two failed ones after them."""

    async def prepare() -> Bench:
        folder = tmp_path_factory.mktemp("run")
        policy = write_tiny_policy(folder / "policy")
        made = Bench(MemoryLog("r_test"), BlobStore(folder / "blobs"), policy, Story(policy))
        await tell(
            made.log, [made.story.start(made.blobs, SETTINGS), *made.story.group(*informative(), seed=1)]
        )
        await learn(made, until=2)
        for _ in range(2):
            await tell(made.log, made.story.group(*FAILED, seed=1))
        return made

    return asyncio.run(prepare())


@pytest.fixture(scope="module")
def trained(half_way: Bench, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """The same, trained to the end: three batches, the last two with a replay each."""

    async def train() -> Bench:
        made = await copy_of(half_way, tmp_path_factory.mktemp("trained") / "blobs")
        await learn(made, until=6)
        return made

    return asyncio.run(train())


async def plans(made: Bench) -> list[BatchPlanned]:
    return [r.fact for r in await events_of(made.log) if isinstance(r.fact, BatchPlanned)]


async def test_each_failed_group_gets_exactly_one_success_of_an_earlier_batch(trained: Bench) -> None:
    first, *later = await plans(trained)
    own = {planned.episode for planned in first.episodes}
    assert len(later) == 2
    for made in later:
        (replay,) = [planned for planned in made.episodes if planned.replaces is not None]
        assert replay.episode in own
        assert len(made.episodes) == 4
        assert replay.replaces in made.consumed
        assert replay.advantage > max(p.advantage for p in made.episodes if p.replaces is None)


async def test_killed_after_any_event_it_comes_to_the_very_same_plans_and_weights(
    half_way: Bench, trained: Bench, tmp_path: Path
) -> None:
    expected = what_was_learned(await events_of(trained.log))
    before = len(what_was_learned(await events_of(half_way.log)))
    for number in range(1, len(expected) - before + 1):
        cut = await copy_of(half_way, tmp_path / f"cut{number}")
        with pytest.raises(Killed):
            await learn(cut, log=Watched(cut.log, number, after=die))  # type: ignore[arg-type]
        assert what_was_learned(await events_of(cut.log)) == expected[: before + number]
        await learn(cut, until=6)
        assert what_was_learned(await events_of(cut.log)) == expected, f"killed after event {number}"
        assert (await folded(cut.log)).stored == (await folded(trained.log)).stored


async def test_it_verifies_to_the_bit_and_the_audit_holds_nothing_against_it(trained: Bench) -> None:
    report = await verify(trained.log, trained.blobs, policy=trained.policy)
    assert (report.identical, report.updates) == (True, 6)
    assert (await audited(trained)).defects_found == 0
    updates = [r.fact for r in await events_of(trained.log) if isinstance(r.fact, UpdateApplied)]
    assert sum(update.metrics["replayed_episodes"] for update in updates) == 2


def _replay(plan: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in plan["episodes"] if one["replaces"] is not None)
    return found


def _other_member(plan: dict[str, Any]) -> None:
    _replay(plan)["replaces"] = next(one["episode"] for one in plan["episodes"] if one["replaces"] is None)


def _a_second_one(plan: dict[str, Any]) -> None:
    next(one for one in plan["episodes"] if one["replaces"] is None)["replaces"] = _replay(plan)["replaces"]


def _not_given_up(plan: dict[str, Any]) -> None:
    plan["consumed"] = []


def _no_replay(plan: dict[str, Any]) -> None:
    _replay(plan)["replaces"] = None


def _of_other_group(plan: dict[str, Any]) -> None:
    _replay(plan)["replaces"] = "ep_group_0_1"
    plan["consumed"] = ["ep_group_0_1"]


def _no_format_term(plan: dict[str, Any]) -> None:
    for one in plan["episodes"]:
        one["format_term"] = -1.0 - one["format_term"]


def _two_format_terms(plan: dict[str, Any]) -> None:
    first, second = [one for one in plan["episodes"] if one["replaces"] is None][:2]
    first["format_term"], second["format_term"] = -1.0, -0.5


def _reward(plan: dict[str, Any]) -> None:
    _replay(plan)["reward"] = 0.05


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (_other_member, "is replaced, and not given up"),
        (_a_second_one, "replays into group group_1"),
        (_not_given_up, "is replaced, and not given up"),
        (_no_replay, "which was used up"),
        (_of_other_group, "which is replaced"),
        (_no_format_term, "format term of"),
        (_two_format_terms, "format terms differ"),
        (_reward, "it replays ep_group_0"),
    ],
)
async def test_a_forged_replay_is_a_defect_at_its_plan(
    trained: Bench, tmp_path: Path, change: Callable[[dict[str, Any]], None], what: str
) -> None:
    altered = await copy_of(trained, tmp_path / "blobs")
    position = positions(altered.log, "batch.planned")[1]
    forge(altered.log, position, lambda event: change(event["payload"]))
    found = [defect for defect in (await audited(altered)).defects if what in defect.what]
    assert found
    assert {defect.position for defect in found} == {position}
