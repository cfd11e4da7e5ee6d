"""`verify` where bits cannot agree: numbers within a tolerance, and what no tolerance excuses."""

import asyncio
from math import inf, nan
from pathlib import Path
from typing import cast

import msgspec
import numpy as np
import pytest
import torch
from safetensors.numpy import save

from hindcast.core.domain.arrays import pack_floats, unpack_floats
from hindcast.events.catalogue import BatchPlanned, UpdateApplied, UpdateSkipped
from hindcast.events.envelope import Fact
from hindcast.learner.training import Training
from hindcast.learner.verify.comparison import POLICY_DISTANCE, deviation, incomparable, weights_distance
from hindcast.learner.verify.verify import VerifyReport, verify
from stories.forging import all_of, forge, with_field
from stories.training_story import Bench, bench, copy_of, learn, settings_with

pytestmark = pytest.mark.torch

DRIFT = 3e-7


class OtherProcessor(Training):
    """Adds up in another order, as it were: before each update its weights are a little off."""

    def step(self, index: int) -> UpdateApplied | UpdateSkipped:
        with torch.no_grad():
            for parameter in self._policy.model.parameters():
                parameter.mul_(1 + DRIFT)
        return super().step(index)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Six updates in three batches; all checkpoints and weights are kept."""

    async def train() -> Bench:
        settings = settings_with(checkpoint_every=1, keep_checkpoints=50, keep_weights=50)
        made = await bench(tmp_path_factory.mktemp("run"), settings=settings)
        await learn(made, until=6)
        return made

    return asyncio.run(train())


@pytest.fixture
async def altered(trained: Bench, tmp_path: Path) -> Bench:
    """The same run, to be altered."""
    return await copy_of(trained, tmp_path / "blobs")


async def check(made: Bench, tolerance: float | None = 1e-3, *, other: bool = False) -> VerifyReport:
    return await verify(
        made.log,
        made.blobs,
        policy=made.policy,
        code_rev="test",
        tolerance=tolerance,
        make_trainer=OtherProcessor if other else Training,
    )


async def an_update(made: Bench, number: int = 3) -> tuple[int, UpdateApplied]:
    recorded = (await all_of(made, UpdateApplied))[number]
    return recorded.position, cast(UpdateApplied, recorded.fact)


class TestRuns:
    """Whole runs."""

    async def test_on_the_same_machine_nothing_deviates_and_it_is_called_identical(
        self, trained: Bench
    ) -> None:
        report = await check(trained)
        assert (report.identical, report.within_tolerance, report.first_divergence) == (True, True, None)
        assert [one.update for one in report.deviations] == [1, 2, 3, 4, 5, 6]
        assert {(one.largest, one.where, one.policy) for one in report.deviations} <= {
            (0.0, "", None),
            (0.0, "", 0.0),
        }

    async def test_numbers_that_lie_a_little_apart_are_told_for_every_update(self, trained: Bench) -> None:
        assert not (await check(trained, None, other=True)).identical
        report = await check(trained, other=True)
        assert (report.identical, report.within_tolerance, report.first_divergence) == (False, True, None)
        assert (report.updates, len(report.deviations)) == (6, 6)
        for one in report.deviations:
            assert 0 < one.largest < 1e-3
            assert one.where
            assert one.largest >= max(one.metrics, *one.samples.values())
            assert one.samples["advantages"] == 0
        closed = [one.policy for one in report.deviations if one.policy is not None]
        assert len(closed) == 3  # the weights of each batch are there to be compared with
        assert all(DRIFT / 2 < distance < 1e-3 for distance in closed)

    async def test_every_checkpoint_begins_anew_so_that_differences_do_not_add_up(
        self, trained: Bench
    ) -> None:
        report = await check(trained, other=True)
        assert [part.stretch.begin.update for part in report.stretches] == [0, 2, 4]
        last = await verify(
            trained.log,
            trained.blobs,
            policy=trained.policy,
            since=report.stretches[-1].stretch.begin.position,
            tolerance=1e-3,
            make_trainer=OtherProcessor,
        )
        assert last.deviations == report.deviations[4:]

    async def test_beyond_the_tolerance_it_goes_on_and_names_the_first(self, trained: Bench) -> None:
        report = await check(trained, 1e-12, other=True)
        assert (report.identical, report.within_tolerance, report.updates) == (False, False, 6)
        position, _ = await an_update(trained, 0)
        found = report.first_divergence
        assert found is not None
        assert (found.position, found.what) == (position, "loss")
        assert found.apart == report.deviations[0].largest
        assert "within 1e-12" in found.expected


class TestNumbers:
    """Single numbers that were altered in the log."""

    @pytest.mark.parametrize(("by", "within"), [(1e-5, True), (1e-2, False)])
    async def test_a_metric(self, altered: Bench, by: float, within: bool) -> None:
        position, fact = await an_update(altered)
        metrics = fact.metrics | {"kl": fact.metrics["kl"] + by}
        forge(altered.log, position, with_field(metrics=metrics), digests=True)
        report = await check(altered)
        assert report.within_tolerance is within
        assert not report.identical
        (furthest,) = [one for one in report.deviations if one.largest > 0]
        assert (furthest.where, furthest.position) == ("kl", position)
        assert furthest.largest == pytest.approx(by)

    async def test_a_ratio_of_one_sample(self, altered: Bench) -> None:
        position, fact = await an_update(altered)
        ratios = unpack_floats(fact.samples.ratios).copy()
        ratios[1] += 0.25
        forge(
            altered.log,
            position,
            with_field(samples=msgspec.structs.replace(fact.samples, ratios=pack_floats(ratios))),
            digests=True,
        )
        report = await check(altered)
        assert report.first_divergence is not None
        assert (report.first_divergence.position, report.first_divergence.what) == (position, "loss")
        assert report.deviations[3].samples["ratios"] == pytest.approx(0.25 / float(ratios[1]), rel=0.1)


class TestNoExcuse:
    """What must agree on every machine."""

    @pytest.mark.parametrize(
        ("field", "value", "what"),
        [("inputs", "0" * 64, "inputs"), ("before", "0" * 64, "weights"), ("update", 9, "plan")],
    )
    async def test_of_an_update(self, altered: Bench, field: str, value: object, what: str) -> None:
        position, _ = await an_update(altered)
        forge(altered.log, position, with_field(**{field: value}), digests=True)
        report = await check(altered)
        assert report.first_divergence is not None
        assert (report.first_divergence.position, report.first_divergence.what) == (position, what)
        assert report.updates == 3  # it does not go on from what cannot be right

    async def test_metrics_of_another_kind(self, altered: Bench) -> None:
        position, _ = await an_update(altered)
        forge(altered.log, position, with_field(metrics={"loss": 1.0}), digests=True)
        found = (await check(altered)).first_divergence
        assert found is not None
        assert (found.position, found.what) == (position, "loss")
        assert "only one side has" in found.found

    async def test_a_plan_in_another_order(self, altered: Bench) -> None:
        plan = (await all_of(altered, BatchPlanned))[1]

        def swapped(fact: BatchPlanned) -> Fact:
            positions = fact.positions
            return msgspec.structs.replace(fact, positions=positions[8:16] + positions[:8] + positions[16:])

        forge(altered.log, plan.position, swapped)
        found = (await check(altered)).first_divergence
        assert found is not None
        assert (found.position, found.what) == (plan.position, "order")


class TestDistances:
    """How far apart, by hand."""

    async def test_small_numbers_by_their_difference_large_ones_by_their_ratio(self, trained: Bench) -> None:
        _, fact = await an_update(trained)
        apart = [
            deviation(
                1,
                msgspec.structs.replace(fact, metrics={"x": left}),
                msgspec.structs.replace(fact, metrics={"x": right}),
            ).largest
            for left, right in ((0.0, 0.5), (1e-9, 2e-9), (200.0, 201.0), (-200.0, -199.0), (3.0, 3.0))
        ]
        assert apart == pytest.approx([0.5, 1e-9, 0.005, 0.005, 0.0])

    @pytest.mark.parametrize(
        ("left", "right", "apart"), [(nan, nan, 0.0), (nan, 1.0, inf), (inf, inf, 0.0), (inf, 1.0, inf)]
    )
    async def test_what_is_not_finite_only_equals_itself(
        self, trained: Bench, left: float, right: float, apart: float
    ) -> None:
        _, fact = await an_update(trained)
        ours = msgspec.structs.replace(fact, metrics={"x": left})
        theirs = msgspec.structs.replace(fact, metrics={"x": right})
        assert deviation(1, ours, theirs).largest == apart

    def test_weights_by_the_norm_of_their_difference(self) -> None:
        def file(**tensors: list[float]) -> bytes:
            content: bytes = save({name: np.array(value, np.float32) for name, value in tensors.items()})
            return content

        assert weights_distance(file(a=[3, 0], b=[4]), file(a=[3, 0], b=[4])) == 0
        assert weights_distance(file(a=[3, 0], b=[4]), file(a=[3, 0.3], b=[4.4])) == pytest.approx(0.1)
        assert weights_distance(file(a=[3]), file(b=[3])) == inf
        assert weights_distance(file(a=[3]), file(a=[3, 3])) == inf
        assert weights_distance(file(a=[3], o=[1]), file(a=[3], o=[2]), prefix="a") == 0

    async def test_the_policy_is_named_where_it_is_furthest_off(self, trained: Bench) -> None:
        _, fact = await an_update(trained)
        near = deviation(1, fact, fact).with_policy(0.5)
        assert (near.where, near.largest, near.policy) == (POLICY_DISTANCE, 0.5, 0.5)

    async def test_kinds_and_lengths_cannot_be_compared(self, trained: Bench) -> None:
        _, fact = await an_update(trained)
        skipped = UpdateSkipped(
            update=fact.update,
            model=fact.model,
            batch=fact.batch,
            minibatch=fact.minibatch,
            reason="",
            state="",
        )
        shorter = msgspec.structs.replace(
            fact, samples=msgspec.structs.replace(fact.samples, masks=fact.samples.masks[4:])
        )
        assert [one.what for one in incomparable(fact, skipped)] == ["loss"]
        assert [one.what for one in incomparable(fact, shorter)] == ["loss"]
        assert not list(incomparable(fact, fact))
