"""Runs that earlier Hindcasts recorded still read, still plan as they did, and where the machine is the same, to the bit.

Everything but floating-point results must come out exactly on every machine: order, advantages, who is swept. Results are
compared where the fingerprint of processor and libraries is the recorded one.
"""

import shutil
from pathlib import Path

import pytest
from record_run import CONFIG, FORGED, RUNS

from hindcast.core.models.folders import base_policy_folder
from hindcast.core.models.policy import WEIGHTS
from hindcast.events.archive.archive_log import ArchiveLog
from hindcast.events.catalogue import BatchPlanned, RunStarted, UpdateApplied
from hindcast.events.envelope import Recorded
from hindcast.events.log.reader import read
from hindcast.learner.batch_plan import plan
from hindcast.learner.buffer.replay_buffer import ReplayBuffer
from hindcast.learner.verify.comparison import Difference, plan_differences
from hindcast.learner.verify.verify import VerifyReport, verify
from hindcast.storage.archive.archiver import archive_blobs
from hindcast.storage.archive.check import check_whole

pytestmark = pytest.mark.torch

GOLDEN = sorted(path.name.removesuffix(CONFIG) for path in RUNS.glob(f"*{CONFIG}"))
NUMERIC = ("loss", "weights")
"""What another processor or library may compute otherwise."""


async def events_of(name: str) -> list[Recorded]:
    return [recorded async for recorded in read(ArchiveLog(RUNS / name), strict=True)]


async def differing_plans(name: str) -> list[tuple[int, Difference]]:
    """Every plan that does not follow from the log before it."""
    events = await events_of(name)
    points = {recorded.fact.as_of for recorded in events if isinstance(recorded.fact, BatchPlanned)}
    buffer, state = ReplayBuffer(), ReplayBuffer().initial()
    made, found = {}, []
    for recorded in events:
        if isinstance(recorded.fact, BatchPlanned):
            again = made.pop(recorded.fact.as_of)
            found += [(recorded.position, each) for each in plan_differences(recorded.fact, again)]
        state = buffer.apply(state, recorded)
        if recorded.position in points:
            made[recorded.position] = plan(state, state.settings)
    return found


async def verified(name: str, policy: Path) -> VerifyReport:
    """As `hindcast verify` does; a forged run's blobs are those of the run it was forged from."""
    original = name.removesuffix(FORGED)
    policy.mkdir()
    for file in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copyfile(base_policy_folder() / file, policy / file)
    shutil.copyfile(RUNS / f"{original}{CONFIG}", policy / "config.json")
    blobs = archive_blobs(RUNS / original)
    started = (await events_of(original))[0].fact
    assert isinstance(started, RunStarted)
    (policy / WEIGHTS).write_bytes(blobs.get(started.base_policy))
    return await verify(ArchiveLog(RUNS / name), blobs, policy=policy)


@pytest.mark.parametrize("name", GOLDEN)
def test_every_byte_of_log_and_blobs_is_as_it_was_recorded(name: str) -> None:
    checked = check_whole(RUNS / name)
    assert not checked.defects
    assert checked.log.segments > 1
    assert checked.blobs == 3


@pytest.mark.parametrize("name", GOLDEN)
async def test_every_plan_comes_out_exactly_on_any_machine(name: str) -> None:
    plans = [recorded for recorded in await events_of(name) if isinstance(recorded.fact, BatchPlanned)]
    assert len(plans) == 3
    assert await differing_plans(name) == []


@pytest.mark.parametrize("name", GOLDEN)
async def test_the_whole_run_verifies_where_processor_and_libraries_are_the_recorded_ones(
    name: str, tmp_path: Path
) -> None:
    report = await verified(name, tmp_path / "policy")
    if report.recorded_on != report.verified_on:
        divergence = report.first_divergence
        assert divergence is None or divergence.what in NUMERIC, divergence
        if divergence is not None:
            pytest.skip(f"recorded elsewhere, results may differ: {divergence.cause}")
    assert report.identical, report.first_divergence
    updates = [recorded for recorded in await events_of(name) if isinstance(recorded.fact, UpdateApplied)]
    assert (report.updates, len(updates), report.weights, report.checkpoints) == (6, 6, 4, 3)


@pytest.mark.parametrize("name", GOLDEN)
async def test_the_smallest_lie_in_a_plan_is_found_though_every_digest_was_made_to_fit(
    name: str, tmp_path: Path
) -> None:
    assert not check_whole(RUNS / f"{name}{FORGED}").log.defects, (
        "the files are in order: only the fact is false"
    )
    ((position, difference),) = await differing_plans(f"{name}{FORGED}")
    assert difference.what == "advantages"
    report = await verified(f"{name}{FORGED}", tmp_path / "policy")
    assert report.first_divergence is not None
    if report.recorded_on == report.verified_on:
        assert (report.first_divergence.position, report.first_divergence.what) == (position, "advantages")
