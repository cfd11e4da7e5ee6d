"""`verify` in parts: from a checkpoint, up to a place, shared out between checkpoints."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import cast

import msgspec
import pytest
import torch

from hindcast.core.domain.arrays import unpack_positions
from hindcast.core.errors import BlobMissing, ForeignLog
from hindcast.events.catalogue import BatchPlanned, CheckpointSaved, RunStarted, UpdateApplied
from hindcast.events.envelope import Fact, Recorded
from hindcast.events.log.memory import MemoryLog
from hindcast.learner.numerics import configure
from hindcast.learner.training import Training
from hindcast.learner.verify.log_recomputer import LogRecomputer, StretchReport
from hindcast.learner.verify.survey import LogStretch, RecomputationStart, survey
from hindcast.learner.verify.verify import VerifyReport, verify
from hindcast.storage.checkpoints import save_checkpoint
from stories.forging import all_of, forge, with_field
from stories.training_story import Bench, bench, copy_of, events_of, learn, settings_with

pytestmark = pytest.mark.torch

BATCHES = 4


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Eight updates in four batches, a checkpoint after each, all of them kept."""

    async def train() -> Bench:
        settings = settings_with(checkpoint_every=1, keep_checkpoints=50, keep_weights=50)
        made = await bench(tmp_path_factory.mktemp("run"), batches=BATCHES, settings=settings)
        await learn(made, until=2 * BATCHES)
        return made

    return asyncio.run(train())


@pytest.fixture
async def altered(trained: Bench, tmp_path: Path) -> Bench:
    """The same run, to be altered."""
    return await copy_of(trained, tmp_path / "blobs")


async def check(
    made: Bench, *, since: int = 0, until: int | None = None, share: int = 0, code_rev: str = "test"
) -> VerifyReport:
    recomputers = [recomputer(made) for _ in range(share)]
    try:
        return await verify(
            made.log,
            made.blobs,
            policy=made.policy,
            code_rev=code_rev,
            since=since,
            until=until,
            recomputers=recomputers,
        )
    finally:
        for one in recomputers:
            await one.close()


def recomputer(made: Bench) -> LogRecomputer:
    return LogRecomputer(made.log, made.blobs, policy=made.policy, code_rev="test", tolerance=None)


async def saved(made: Bench, number: int) -> Recorded:
    return (await all_of(made, CheckpointSaved))[number]


def fact_of(recorded: Recorded) -> CheckpointSaved:
    return cast(CheckpointSaved, recorded.fact)


def damage(made: Bench, recorded: Recorded) -> None:
    place = made.blobs.path(fact_of(recorded).blob)
    content = bytearray(place.read_bytes())
    content[-5] ^= 1
    place.write_bytes(content)


class TestFrom:
    """Beginning at a checkpoint."""

    async def test_what_follows_the_checkpoint_is_recomputed_and_all_of_the_log_is_checked(
        self, trained: Bench
    ) -> None:
        begin = await saved(trained, 1)
        report = await check(trained, since=begin.position)
        assert (report.identical, report.events) == (True, len(trained.log.events))
        assert (report.updates, report.weights, report.checkpoints) == (4, 2, 2)
        (stretch,) = report.stretches
        assert (stretch.stretch.begin.position, stretch.stretch.begin.update) == (begin.position, 4)
        assert report.notices == ()

    async def test_a_place_between_two_checkpoints_begins_at_the_one_before(self, trained: Bench) -> None:
        begin = await saved(trained, 2)
        report = await check(trained, since=begin.position + 3)
        assert report.stretches[0].stretch.begin.position == begin.position
        assert (report.updates, report.identical) == (2, True)

    async def test_before_the_first_checkpoint_it_begins_with_the_base_weights(self, trained: Bench) -> None:
        first = await saved(trained, 0)
        report = await check(trained, since=first.position - 1)
        assert report.stretches[0].stretch.begin.position == 0
        assert (report.updates, report.identical) == (2 * BATCHES, True)

    async def test_a_released_checkpoint_is_passed_over_for_an_older_one(self, altered: Bench) -> None:
        begin = await saved(altered, 2)
        altered.blobs.release(fact_of(begin).blob)
        report = await check(altered, since=begin.position)
        assert report.stretches[0].stretch.begin.position == (await saved(altered, 1)).position
        assert (report.updates, report.identical, report.notices) == (4, True, ())

    async def test_a_damaged_checkpoint_is_passed_over_and_named(self, altered: Bench) -> None:
        begin = await saved(altered, 2)
        damage(altered, begin)
        report = await check(altered, since=begin.position)
        assert report.stretches[0].stretch.begin.position == (await saved(altered, 1)).position
        assert (report.updates, report.identical) == (4, True)
        (notice,) = report.notices
        assert "checkpoint of update 6 was not used" in notice

    @pytest.mark.parametrize("field", ["state", "update", "version", "batch"])
    async def test_a_checkpoint_that_does_not_hold_what_its_event_says_diverges_where_it_stands(
        self, altered: Bench, field: str
    ) -> None:
        begin = await saved(altered, 1)
        forge(
            altered.log,
            begin.position,
            with_field(**{field: "0" * 64 if field == "state" else 9}),
            digests=True,
        )
        report = await check(altered, since=begin.position)
        assert report.first_divergence is not None
        assert (report.first_divergence.position, report.first_divergence.what) == (begin.position, "weights")

    async def test_the_blob_of_another_checkpoint_is_not_taken_for_it(self, altered: Bench) -> None:
        one, other = await saved(altered, 1), await saved(altered, 2)
        forge(altered.log, one.position, with_field(blob=fact_of(other).blob), digests=True)
        report = await check(altered, since=one.position)
        assert report.first_divergence is not None
        assert report.first_divergence.position == one.position

    async def test_numbers_before_it_are_not_recomputed_but_what_they_were_made_of_is_checked(
        self, altered: Bench
    ) -> None:
        begin = await saved(altered, 1)
        early = (await all_of(altered, UpdateApplied))[0]
        forge(altered.log, early.position, with_field(inputs="0" * 64), digests=True)
        assert (await check(altered, since=begin.position)).identical
        assert not (await check(altered)).identical
        planned = cast(BatchPlanned, (await all_of(altered, BatchPlanned))[0].fact)
        step = int(unpack_positions(planned.positions)[2])
        forge(altered.log, step, with_field(generate_ms=77.0))
        found = (await check(altered, since=begin.position)).first_divergence
        assert found is not None
        assert (found.position, found.what) == (step, "inputs")

    async def test_a_log_whose_beginning_is_in_an_archive_is_refused_with_the_way_out(
        self, trained: Bench
    ) -> None:
        class Later(MemoryLog):
            async def identity(self):  # type: ignore[no-untyped-def]
                return msgspec.structs.replace(await super().identity(), first=300)

        with pytest.raises(ForeignLog, match="Name the archive's folder"):
            await survey(Later("r"), until=400)


class TestUntil:
    """Ending before the log does."""

    async def test_only_what_stands_up_to_there_is_looked_at(self, altered: Bench) -> None:
        updates = await all_of(altered, UpdateApplied)
        end = updates[4].position
        forge(altered.log, updates[5].position, with_field(after="0" * 64), digests=True)
        report = await check(altered, until=end)
        assert (report.identical, report.events, report.until, report.updates) == (True, end, end, 5)
        assert not (await check(altered)).identical

    async def test_a_part_has_two_ends(self, trained: Bench) -> None:
        begin, end = await saved(trained, 0), await saved(trained, 2)
        report = await check(trained, since=begin.position, until=end.position)
        assert (report.updates, report.checkpoints, report.identical) == (4, 2, True)


class TestShared:
    """Stretches between checkpoints, each by whoever is free."""

    @pytest.mark.parametrize("share", [1, 2, 3])
    async def test_together_they_cover_the_log_and_find_what_one_alone_finds(
        self, trained: Bench, share: int
    ) -> None:
        alone, shared = await check(trained), await check(trained, share=share)
        assert shared.identical
        for name in ("events", "updates", "weights", "checkpoints", "recorded_cpu_s", "until"):
            assert getattr(shared, name) == pytest.approx(getattr(alone, name))
        ends = [(part.stretch.begin.position, part.stretch.until) for part in shared.stretches]
        assert (ends[0][0], ends[-1][1]) == (0, len(trained.log.events))
        assert [begin for begin, _ in ends[1:]] == [end for _, end in ends[:-1]]
        assert len(ends) >= min(share, 2)

    @pytest.mark.parametrize("number", [0, 3, 5, 7])
    async def test_whoever_finds_a_difference_it_is_the_one_that_one_alone_finds(
        self, altered: Bench, number: int
    ) -> None:
        target = (await all_of(altered, UpdateApplied))[number]
        forge(altered.log, target.position, with_field(after="0" * 64), digests=True)
        alone, shared = await check(altered), await check(altered, share=2)
        assert shared.first_divergence == alone.first_divergence
        assert shared.first_divergence is not None
        assert shared.first_divergence.position == target.position

    async def test_of_two_differences_the_first_by_position_counts_though_it_is_found_last(
        self, altered: Bench
    ) -> None:
        updates = await all_of(altered, UpdateApplied)
        for number in (1, 6):
            forge(altered.log, updates[number].position, with_field(inputs="0" * 64), digests=True)
        found = asyncio.Event()

        class Late(LogRecomputer):
            """Has not begun when the other is through with everything else."""

            async def recompute(self, stretch: LogStretch, *, updated: Callable[[], None]) -> StretchReport:
                if stretch.begin.position == 0:
                    await found.wait()
                report = await super().recompute(stretch, updated=updated)
                if report.divergence is not None:
                    found.set()
                return report

        late = [
            Late(altered.log, altered.blobs, policy=altered.policy, code_rev="test", tolerance=None)
            for _ in range(2)
        ]
        report = await verify(
            altered.log, altered.blobs, policy=altered.policy, code_rev="test", recomputers=late
        )
        assert report.first_divergence is not None
        assert report.first_divergence.position == updates[1].position
        assert report.updates == 1

    async def test_a_state_that_the_next_stretch_does_not_begin_with_is_found_where_they_meet(
        self, altered: Bench
    ) -> None:
        """Both sides of the seam are whole in themselves: event and blob of another training were put in."""
        seam = await saved(altered, 1)
        other = Training(
            altered.policy,
            cast(RunStarted, (await events_of(altered.log))[0].fact).base_policy,
            blobs=altered.blobs,
            settings=settings_with().learner,
        )
        with torch.no_grad():
            next(iter(other._policy.model.parameters())).add_(1)
        tensors, counters = other.snapshot(batch=1, version=2)
        counters = msgspec.structs.replace(counters, update=4)
        blob = save_checkpoint(altered.blobs, tensors, counters)
        forge(altered.log, seam.position, with_field(blob=blob, state=counters.state), digests=True)
        report = await check(altered, share=2)
        assert report.first_divergence is not None
        assert (report.first_divergence.position, report.first_divergence.what) == (seam.position, "weights")

    async def test_damaged_and_released_checkpoints_only_make_stretches_longer(self, altered: Bench) -> None:
        damage(altered, await saved(altered, 0))
        altered.blobs.release(fact_of(await saved(altered, 1)).blob)
        report = await check(altered, share=2)
        assert (report.identical, report.updates) == (True, 2 * BATCHES)
        assert len(report.notices) == 1
        assert (await saved(altered, 0)).position not in {r.stretch.until for r in report.stretches}

    async def test_a_checkpoint_that_is_released_meanwhile_is_said_to_be(self, altered: Bench) -> None:
        class Released(LogRecomputer):
            async def recompute(self, stretch: LogStretch, *, updated: Callable[[], None]) -> StretchReport:
                for recorded in await all_of(altered, CheckpointSaved):
                    altered.blobs.release(fact_of(recorded).blob)
                return await super().recompute(stretch, updated=updated)

        late = [
            Released(altered.log, altered.blobs, policy=altered.policy, code_rev="test", tolerance=None)
            for _ in range(2)
        ]
        with pytest.raises(BlobMissing, match="Run the same command again"):
            await verify(altered.log, altered.blobs, policy=altered.policy, recomputers=late)

    async def test_a_recomputer_goes_back_when_it_must(self, trained: Bench) -> None:
        one = recomputer(trained)
        first, second = [(await saved(trained, number)) for number in (0, 1)]
        stretches = [
            LogStretch(begin=RecomputationStart(position=a, update=0), until=b)
            for a, b in ((first.position, second.position), (0, first.position))
        ]
        reports = [await one.recompute(stretch, updated=lambda: None) for stretch in stretches]
        await one.close()
        assert [(r.updates, r.checkpoints, r.divergence) for r in reports] == [(2, 1, None)] * 2


async def test_progress_tells_of_every_update_once(trained: Bench) -> None:
    told: list[tuple[int, int]] = []
    await verify(
        trained.log,
        trained.blobs,
        policy=trained.policy,
        progress=lambda done, total: told.append((done, total)),
    )
    assert told == [(number + 1, 2 * BATCHES) for number in range(2 * BATCHES)]


async def test_it_computes_with_as_many_threads_as_the_log_says(altered: Bench) -> None:
    def two(fact: Fact) -> Fact:
        assert isinstance(fact, RunStarted)
        return msgspec.structs.replace(fact, fingerprint=msgspec.structs.replace(fact.fingerprint, threads=2))

    forge(altered.log, 1, two, digests=True)
    counted: list[int] = []

    class Counting(Training):
        def begin(self, plan, batch):  # type: ignore[no-untyped-def]
            counted.append(torch.get_num_threads())
            super().begin(plan, batch)

    try:
        report = await verify(altered.log, altered.blobs, policy=altered.policy, make_trainer=Counting)
    finally:
        configure(1)
    assert set(counted) == {2}
    assert report.verified_on is not None
    assert report.verified_on.threads == 2


async def test_the_report_compares_its_cpu_time_with_what_the_updates_had_taken(trained: Bench) -> None:
    report = await check(trained)
    taken = [cast(UpdateApplied, recorded.fact).cpu_ms for recorded in await all_of(trained, UpdateApplied)]
    assert report.recorded_cpu_s == pytest.approx(sum(taken) / 1000)
    assert report.cpu_ratio == pytest.approx(report.cpu_s / report.recorded_cpu_s)
