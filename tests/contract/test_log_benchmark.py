"""`hindcast bench log` measures what it says: the same events on both sides, all of them, and a fold that is right."""

from pathlib import Path

import pytest

from bench.log_append import Appending
from bench.log_disk import synced_writes_per_s
from bench.log_facts import GROUP, STEPS, group_facts
from bench.log_read import Reading, tail_latency
from bench.log_stage import SETTINGS, stage
from hindcast.events.codec import encode_fact
from hindcast.events.jetstream.stream_log import JetStreamLog

pytestmark = pytest.mark.broker

APPENDED = GROUP * (STEPS + 3)
"""Of a group: starts, steps and ends; verdicts."""


async def test_both_sides_append_the_same_bytes_in_the_same_batches(tmp_path: Path) -> None:
    async with stage(tmp_path) as where:
        appending = Appending(where, groups=1)
        rates = [await measure() for measure in (appending.ours, appending.raw, appending.raw_with_ids)]
        assert all(rate > 0 for rate in rates)
        assert appending.appended.events == APPENDED
        stored = []
        for number in range(3):
            log = JetStreamLog(await where.connection("reader"), f"bench{number:05}", SETTINGS)
            stored.append(await log.read(after=0, limit=1000))
        assert len(stored[0]) == APPENDED
        ours, raw, with_ids = ({one.data: one.id for one in events} for events in stored)
        assert ours == with_ids
        assert raw == dict.fromkeys(ours, "")
        assert set(where.cpu_us) == {"append: ours", "append: raw", "append: raw with ids"}


async def test_both_sides_read_the_whole_log_and_ours_folds_it(tmp_path: Path) -> None:
    async with stage(tmp_path) as where:
        reading = Reading(where)
        await reading.fill(groups=6)
        assert reading.events == 6 * len(list(group_facts(0)))
        assert await reading.ours() > 0
        assert await reading.raw() > 0
        assert reading.state.position == reading.events
        assert len(reading.state.settled_groups) == 6, "swept groups are let go of"
        latency = await tail_latency(where, events=5)
        assert latency.events == 5
        assert latency.p50_ms <= latency.p99_ms


def test_the_mixture_is_seeded_and_its_steps_are_a_kilobyte_or_two() -> None:
    steps = [said.fact for said in group_facts(3) if type(said.fact).__name__ == "StepTaken"]
    assert len(steps) == GROUP * STEPS
    assert all(1000 < memoryview(encode_fact(step)).nbytes < 2000 for step in steps)
    assert list(group_facts(3)) == list(group_facts(3))
    assert list(group_facts(3)) != list(group_facts(4))


@pytest.mark.parametrize("size", [1, 4096])
def test_the_disk_is_measured_and_left_as_it_was(size: int, tmp_path: Path) -> None:
    assert synced_writes_per_s(tmp_path, block_bytes=size, seconds=0.01) > 0
    assert not list(tmp_path.iterdir())
