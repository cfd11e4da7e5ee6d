"""The made-up run that replay is measured on is a run like any other, and growth shows."""

from collections import Counter
from pathlib import Path

import pytest

from bench.replay import CHUNK, GROWTH, Costs, Figure
from bench.replay_log import LongLog
from hindcast.actors.curriculum.pool import configured_pool
from hindcast.actors.curriculum.projection import CurriculumProjection
from hindcast.actors.curriculum.snapshots import curriculum_kind
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import BatchPlanned
from hindcast.events.envelope import BlobRef, Record
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.projection import fold
from hindcast.events.log.reader import read
from hindcast.learner.batch_plan import plan
from hindcast.learner.buffer.replay_buffer import ReplayBuffer
from hindcast.learner.buffer.state import BufferState
from hindcast.learner.restore import fold_history
from hindcast.learner.retention import KEEP_SNAPSHOTS
from hindcast.storage.blobs.store import BlobStore
from hindcast.storage.checkpoints import Counters
from hindcast.storage.snapshots import newest_standing
from stories.curriculum_story import SOURCES, settings_of

pytestmark = pytest.mark.torch

SETTINGS = settings_of(storage={"snapshot_events": 300}, learner={"max_staleness": 2, "keep_checkpoints": 2})
EVENTS = 3_000


async def long_log(folder: Path, settings: Settings = SETTINGS) -> tuple[MemoryLog, BlobStore]:
    blobs = BlobStore(folder)

    def save(counters: Counters) -> BlobRef:
        return blobs.put(f"checkpoint of {counters.update}".encode())

    made = LongLog(
        "long",
        settings,
        configured_pool(SOURCES, settings.curriculum),
        blobs,
        base=blobs.put(b"base"),
        state="0" * 64,
        save_checkpoint=save,
    )
    log = MemoryLog("long")
    for stored in made.tell(EVENTS):
        assert await log.append([Record(stored.subject, stored.data, stored.id)]) == [stored.position]
    return log, blobs


async def test_a_made_up_run_is_read_planned_and_started_like_one_that_was_trained(tmp_path: Path) -> None:
    log, blobs = await long_log(tmp_path)
    history = [recorded async for recorded in read(log, strict=True)]
    plans = {
        recorded.fact.as_of: recorded.fact for recorded in history if isinstance(recorded.fact, BatchPlanned)
    }
    assert len(plans) > 10
    state, due = BufferState(), Counter[bool]()

    for recorded in history:
        state = ReplayBuffer().apply(state, recorded)
        if recorded.position in plans:
            due[plan(state, SETTINGS) == plans[recorded.position]] += 1
    assert due == {True: len(plans)}
    found = await fold_history(log, blobs, unreadable=set())
    assert found.state.position == EVENTS
    assert found.checkpoint is not None
    assert found.state.digest.value == state.digest.value
    assert all(len(kept) <= KEEP_SNAPSHOTS for kept in found.state.snapshots.values())


async def test_its_curriculum_starts_from_a_state_that_is_the_fold_up_to_there(tmp_path: Path) -> None:
    log, blobs = await long_log(tmp_path)
    history = [recorded async for recorded in read(log, strict=True)]
    standing = await newest_standing(log, blobs, curriculum_kind(SETTINGS))
    assert standing is not None
    whole = fold(CurriculumProjection.under(SETTINGS), history[: standing.saved.position])
    assert standing.state == whole


@pytest.mark.parametrize(("factor", "flat"), [(1.0, True), (1.4, False), (0.9, True)])
def test_growth_is_told_from_what_one_more_event_costs_at_each_size(factor: float, flat: bool) -> None:
    costs = Costs()
    for position in range(CHUNK, 20_001, CHUNK):
        each = 1e-5 * (factor if position > 10_000 else 1.0)
        costs.add(position, CHUNK, CHUNK * each * (1.01 if position % (2 * CHUNK) else 0.99))
    *sizes, growth = costs.growth("fold", [10_000, 20_000])
    assert [
        round(figure.value / factor_, 1) for figure, factor_ in zip(sizes, (1.0, factor), strict=True)
    ] == [10, 10]
    assert growth.value == pytest.approx(factor, rel=0.02)
    assert growth.goal == GROWTH
    assert growth.met is flat
    assert growth.low is not None
    assert growth.high is not None
    assert growth.low <= growth.value <= growth.high


def test_a_goal_is_met_from_the_side_it_lies_on() -> None:
    rate = Figure(name="rate", value=9, unit="", goal=10, more_is_better=True)
    wait = Figure(name="wait", value=9, unit="", goal=10)
    assert (rate.met, wait.met) == (False, True)
    assert Figure(name="told", value=9, unit="").met is None
