"""`verify` on logs that were altered: the first position that differs, what differs, and a likely cause."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, cast

import msgspec
import pytest

from hindcast.core.domain.arrays import pack_floats, pack_ids, unpack_floats, unpack_ids, unpack_positions
from hindcast.core.domain.evidence import Judgment
from hindcast.core.errors import BlobMissing, ForeignLog, UnknownVersion
from hindcast.events.catalogue import (
    BatchPlanned,
    CheckpointSaved,
    EpisodeJudged,
    EpisodeRequested,
    RunFinished,
    RunStarted,
    SamplesSwept,
    StepTaken,
    UpdateApplied,
    WeightsPublished,
)
from hindcast.events.codec import decode_envelope, encode
from hindcast.events.envelope import BlobRef, Fact, Recorded, Stored
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.publisher import Publisher
from hindcast.learner.verify.verify import Divergence, VerifyReport, verify
from stories.forging import all_of, forge, put, with_field
from stories.training_story import (
    QUICK,
    RUN,
    Bench,
    bench,
    copy_of,
    events_of,
    folder_of,
    learn,
    settings_with,
)

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Five updates, the third batch unfinished, with a restart in the middle."""

    async def train() -> Bench:
        made = await bench(tmp_path_factory.mktemp("run"))
        await learn(made, until=3)
        await learn(made, until=5)
        return made

    return asyncio.run(train())


@pytest.fixture
async def altered(trained: Bench, tmp_path: Path) -> Bench:
    """The same run, to be altered."""
    return await copy_of(trained, tmp_path / "blobs")


async def check(made: Bench, *, code_rev: str = "test") -> VerifyReport:
    return await verify(made.log, made.blobs, policy=made.policy, code_rev=code_rev)


async def diverged(made: Bench, *, code_rev: str = "test") -> Divergence:
    report = await check(made, code_rev=code_rev)
    assert not report.identical
    assert report.first_divergence is not None
    return report.first_divergence


async def test_an_unaltered_run_with_a_restart_is_identical_and_nothing_is_written(altered: Bench) -> None:
    files = sorted(folder_of(altered.blobs).rglob("*"))
    events = list(altered.log.events)
    report = await check(altered)
    assert (report.identical, report.first_divergence) == (True, None)
    assert (report.updates, report.weights, report.checkpoints, report.events) == (5, 3, 2, len(events))
    assert report.recorded_on == report.verified_on
    assert report.cpu_s > 0
    assert altered.log.events == events
    assert sorted(folder_of(altered.blobs).rglob("*")) == files


class TestInputs:
    """What a batch was trained on."""

    async def trained_step(self, made: Bench, batch: int = 1) -> Recorded:
        planned = cast(BatchPlanned, (await all_of(made, BatchPlanned))[batch].fact)
        position = int(unpack_positions(planned.positions)[3])
        return (await events_of(made.log))[position - 1]

    @pytest.mark.parametrize("field", ["prompt_ids", "action_ids", "logprobs", "versions"])
    async def test_one_altered_byte_of_a_step_names_that_step(self, altered: Bench, field: str) -> None:
        step = await self.trained_step(altered)
        content = bytearray(altered.log.events[step.position - 1].data)
        content[content.find(getattr(step.fact, field))] ^= 1
        put(altered.log, step.position, bytes(content))
        found = await diverged(altered)
        assert (found.position, found.event, found.what) == (step.position, "step.taken", "inputs")

    async def test_a_step_in_a_mended_chain_is_named_by_the_digest_its_plan_recorded(
        self, altered: Bench
    ) -> None:
        step = await self.trained_step(altered)
        ids = unpack_ids(cast(StepTaken, step.fact).prompt_ids).copy()
        ids[0] += 1
        forge(altered.log, step.position, with_field(prompt_ids=pack_ids(ids)))
        found = await diverged(altered)
        assert (found.position, found.event, found.what) == (step.position, "step.taken", "inputs")
        assert "altered after a batch had been planned from it" in found.cause

    async def test_a_verdict_in_a_mended_chain_is_named_with_both_rewards(self, altered: Bench) -> None:
        planned = cast(BatchPlanned, (await all_of(altered, BatchPlanned))[0].fact)
        episode = planned.episodes[2]
        verdicts = {cast(EpisodeJudged, r.fact).episode: r for r in await all_of(altered, EpisodeJudged)}
        judgment = Judgment(outcome="success", reward=0.5, reason="")
        position = verdicts[episode.episode].position
        forge(altered.log, position, with_field(judgment=judgment))
        found = await diverged(altered)
        assert (found.position, found.event, found.what) == (position, "episode.judged", "advantages")
        assert (found.expected[:10], found.found) == ("reward 1.0", "reward 0.5")

    async def test_an_altered_event_that_no_plan_uses_still_shows(self, altered: Bench) -> None:
        requested = await all_of(altered, EpisodeRequested)
        forge(altered.log, requested[3].position, with_field(lease_s=1.0))
        found = await diverged(altered)
        plan = (await all_of(altered, BatchPlanned))[0]
        assert (found.position, found.what) == (plan.position, "chain")
        assert "log_digest" in found.expected


class TestPlans:
    """Plans that do not follow from the log before them."""

    async def forged(self, made: Bench, change: Callable[[BatchPlanned], Fact]) -> tuple[Divergence, int]:
        plan = (await all_of(made, BatchPlanned))[1]
        forge(made.log, plan.position, change)
        return await diverged(made), plan.position

    async def test_another_order_of_samples(self, altered: Bench) -> None:
        def swapped(plan: BatchPlanned) -> Fact:
            positions, digests = plan.positions, plan.sample_digests
            return msgspec.structs.replace(
                plan,
                positions=positions[8:16] + positions[:8] + positions[16:],
                sample_digests=digests[8:16] + digests[:8] + digests[16:],
            )

        found, position = await self.forged(altered, swapped)
        assert (found.position, found.event, found.what) == (position, "batch.planned", "order")
        assert "sample 0 is position" in found.expected

    async def test_another_advantage(self, altered: Bench) -> None:
        def raised(plan: BatchPlanned) -> Fact:
            first = msgspec.structs.replace(plan.episodes[0], advantage=plan.episodes[0].advantage + 1e-12)
            return msgspec.structs.replace(plan, episodes=(first, *plan.episodes[1:]))

        found, position = await self.forged(altered, raised)
        assert (found.position, found.event, found.what) == (position, "batch.planned", "advantages")

    @pytest.mark.parametrize(
        ("field", "value", "what"),
        [
            ("seed", 1, "plan"),
            ("config_digest", "0" * 64, "plan"),
            ("consumed", ("ep_x",), "plan"),
            ("minibatches", pack_ids([1, 2]), "plan"),
            ("version", 7, "plan"),
            ("sample_digests", b"", "plan"),
            ("log_digest", bytes(32), "chain"),
            ("as_of", 5, "plan"),
        ],
        ids=lambda value: value if isinstance(value, str) and len(value) < 20 else "",
    )
    async def test_any_other_field(self, altered: Bench, field: str, value: object, what: str) -> None:
        found, position = await self.forged(altered, with_field(**{field: value}))
        assert (found.position, found.event, found.what) == (position, "batch.planned", what)

    async def test_a_sweep_of_episodes_that_were_not_due(self, altered: Bench) -> None:
        (sweep, *_) = await all_of(altered, SamplesSwept)
        planned = cast(BatchPlanned, (await all_of(altered, BatchPlanned))[0].fact)
        forge(altered.log, sweep.position, with_field(episodes=(planned.episodes[0].episode,)))
        found = await diverged(altered)
        assert (found.position, found.event, found.what) == (sweep.position, "samples.swept", "plan")


class TestUpdates:
    """Results that do not come out as recorded."""

    async def forged(
        self, made: Bench, change: Callable[[Any], Fact], kind: type[Fact] = UpdateApplied
    ) -> Divergence:
        target = (await all_of(made, kind))[2 if kind is UpdateApplied else 1]
        forge(made.log, target.position, change, digests=True)
        found = await diverged(made)
        assert found.position == target.position
        assert found.event == target.envelope.type
        return found

    @pytest.mark.parametrize(
        ("field", "what"),
        [("after", "weights"), ("before", "weights"), ("inputs", "inputs"), ("update", "plan")],
    )
    async def test_another_digest(self, altered: Bench, field: str, what: str) -> None:
        def change(fact: UpdateApplied) -> Fact:
            return msgspec.structs.replace(fact, **{field: 9 if field == "update" else "0" * 64})

        found = await self.forged(altered, change)
        assert found.what == what
        assert "altered" in found.cause

    async def test_another_loss(self, altered: Bench) -> None:
        def change(fact: UpdateApplied) -> Fact:
            return msgspec.structs.replace(
                fact, metrics=fact.metrics | {"loss": fact.metrics["loss"] + 1e-15}
            )

        found = await self.forged(altered, change)
        assert (found.what, found.expected[:5]) == ("loss", "loss ")
        assert (found.same, found.differing) == (("inputs", "order", "advantages", "weights"), ("loss",))
        assert found.apart == pytest.approx(1e-15, rel=0.5)
        assert "the numbers are close" in found.cause

    async def test_what_is_known_about_then_and_now_stands_beside_it(self, altered: Bench) -> None:
        update = (await all_of(altered, UpdateApplied))[0]
        forge(altered.log, update.position, with_field(inputs="0" * 64))
        found = await diverged(altered, code_rev="newer")
        assert (found.entity, found.code_then, found.code_now) == ("batch_0", "test", "newer")
        assert found.machine_then is not None
        assert found.machine_then == found.machine_now
        assert (found.differing, found.apart) == (("inputs",), 0.0)

    async def test_another_ratio_of_one_sample(self, altered: Bench) -> None:
        def change(fact: UpdateApplied) -> Fact:
            ratios = unpack_floats(fact.samples.ratios).copy()
            ratios[0] += 1e-6
            return msgspec.structs.replace(
                fact, samples=msgspec.structs.replace(fact.samples, ratios=pack_floats(ratios))
            )

        assert (await self.forged(altered, change)).what == "loss"

    async def test_other_weights(self, altered: Bench) -> None:
        found = await self.forged(altered, with_field(weights=BlobRef("0" * 64, 1)), WeightsPublished)
        assert found.what == "weights"

    async def test_another_checkpoint(self, altered: Bench) -> None:
        found = await self.forged(altered, with_field(state="0" * 64), CheckpointSaved)
        assert found.what == "weights"

    async def test_another_machine_is_named_as_the_likely_cause(self, altered: Bench) -> None:
        def elsewhere(fact: RunStarted) -> Fact:
            changed = msgspec.structs.replace(fact.fingerprint, torch="2.12.1", cpu_capability="NEON")
            return msgspec.structs.replace(fact, fingerprint=changed)

        forge(altered.log, 1, elsewhere, digests=True)
        found = await self.forged(altered, with_field(after="0" * 64))
        assert "torch 2.12.1 then" in found.cause
        assert "cpu_capability NEON then" in found.cause

    async def test_other_code_is_named_as_a_likely_cause(self, altered: Bench) -> None:
        update = (await all_of(altered, UpdateApplied))[0]
        forge(altered.log, update.position, with_field(after="0" * 64))
        assert "verified by code newer" in (await diverged(altered, code_rev="newer")).cause


class TestBytes:
    """Damage anywhere before the last plan shows, and the damaged position is the one named."""

    @pytest.mark.parametrize("seed", range(16))
    async def test_any_flipped_bit(self, altered: Bench, seed: int) -> None:
        random = Random(seed)
        last = (await all_of(altered, BatchPlanned))[-1].position
        position = random.randrange(1, last)
        content = bytearray(altered.log.events[position - 1].data)
        at = random.randrange(len(content))
        content[at] ^= 1 << random.randrange(8)
        put(altered.log, position, bytes(content))
        assert (await diverged(altered)).position == position

    async def test_an_event_cut_out(self, altered: Bench) -> None:
        events = altered.log.events
        events[:] = [Stored(at, s.subject, s.data, s.id) for at, s in enumerate(events[:40] + events[41:], 1)]
        found = await diverged(altered)
        assert (found.position, found.what) == (41, "chain")

    async def test_two_neighbours_exchanged(self, altered: Bench) -> None:
        steps = [r.position for r in await all_of(altered, StepTaken)]
        first = next(p for p in steps if p + 1 in steps)
        events = altered.log.events
        one, two = events[first - 1], events[first]
        events[first - 1] = Stored(first, two.subject, two.data, two.id)
        events[first] = Stored(first + 1, one.subject, one.data, one.id)
        found = await diverged(altered)
        assert found.position == first

    async def test_an_event_of_a_newer_hindcast_is_refused_and_not_called_altered(
        self, altered: Bench
    ) -> None:
        async with Publisher(altered.log, producer="app.1", code_rev="newer", settings=QUICK) as publisher:
            await publisher.publish(RunFinished(reason="", updates=5, episodes=1), entity=RUN)
        last = altered.log.events[-1]
        data = encode(msgspec.structs.replace(decode_envelope(last), version=99))
        put(altered.log, last.position, data)
        with pytest.raises(UnknownVersion, match="Update Hindcast"):
            await check(altered)


async def test_without_the_base_weights_nothing_can_be_said(altered: Bench) -> None:
    started = cast(RunStarted, (await events_of(altered.log))[0].fact)
    altered.blobs.release(started.base_policy)
    with pytest.raises(BlobMissing):
        await check(altered)


async def test_a_log_without_a_run_is_refused(altered: Bench) -> None:
    with pytest.raises(ForeignLog, match="nothing to verify"):
        await verify(MemoryLog(RUN), altered.blobs, policy=altered.policy)


async def test_a_run_that_has_not_trained_yet_is_identical(tmp_path: Path) -> None:
    made = await bench(tmp_path, batches=0, settings=settings_with())
    report = await check(made)
    assert (report.identical, report.updates, report.events) == (True, 0, 1)
