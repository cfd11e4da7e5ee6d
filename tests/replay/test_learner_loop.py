"""The learner on a log in memory with a tiny real model: order of facts, crashes everywhere, fencing, stopping."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import structlog

from hindcast.core.errors import BlobMissing, ExpectationFailed, ForeignLog, ReplayDiverged
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import (
    BatchPlanned,
    BlobReleased,
    CheckpointSaved,
    UpdateApplied,
    UpdateSkipped,
    WaitExceeded,
    WeightsPublished,
)
from hindcast.events.envelope import Stored
from hindcast.events.log.memory import MemoryLog
from hindcast.learner.loop import LearnerReport
from hindcast.learner.training import Training
from hindcast.learner.verify.verify import verify
from stories.learner_story import Killed, Watched, die, facts_of, kinds
from stories.training_story import (
    Bench,
    Member,
    bench,
    copy_of,
    events_of,
    folded,
    folder_of,
    informative,
    learn,
    settings_with,
    tell,
    what_was_learned,
)

pytestmark = pytest.mark.torch

SMALL = {"keep_checkpoints": 1, "keep_weights": 1, "checkpoint_every": 2}


class Stopped(Watched):
    """A log whose tail stands still while `goes` is not set."""

    def __init__(self, log: MemoryLog) -> None:
        super().__init__(log, 0)
        self.goes = asyncio.Event()
        self.goes.set()

    async def tail(self, *, after: int, headers: bool = True) -> AsyncIterator[list[Stored]]:
        async for batch in self._log.tail(after=after):
            await self.goes.wait()
            yield batch


async def test_a_plan_comes_before_its_updates_and_weights_after_them(tmp_path: Path) -> None:
    made = await bench(tmp_path)
    report = await learn(made, until=6)
    found = await facts_of(made, BatchPlanned, UpdateApplied, WeightsPublished, CheckpointSaved)
    batch = ["BatchPlanned", "UpdateApplied", "UpdateApplied", "WeightsPublished", "CheckpointSaved"]
    assert kinds(found) == ["WeightsPublished", *batch * 3]
    assert (report.updates, report.version, report.batches, report.recomputed) == (6, 3, 3, 0)
    updates = [fact for fact in found if isinstance(fact, UpdateApplied)]
    assert [u.before for u in updates[1:]] == [u.after for u in updates[:-1]]
    assert len({u.after for u in updates}) == 6
    assert [f.version for f in found if isinstance(f, WeightsPublished)] == [0, 1, 2, 3]


async def test_an_update_makes_what_was_rewarded_more_likely(tmp_path: Path) -> None:
    made = await bench(
        tmp_path, batches=1, settings=settings_with(kl_coefficient=0, learning_rate=1e-3, warmup_updates=0)
    )
    await learn(made, until=2)
    (planned,) = await facts_of(made, BatchPlanned)
    last = (await facts_of(made, UpdateApplied))[-1]
    # the second mini-batch was not trained on in the first: its samples' ratios show what the first one taught
    assert last.metrics["ratio_mean"] != 1.0
    state = await folded(made.log)
    training = Training(
        made.policy, state.started.base_policy, blobs=made.blobs, settings=state.settings.learner
    )  # type: ignore[union-attr]
    assert training.digest == (await facts_of(made, UpdateApplied))[0].before
    assert planned.version == 0


class TestCrash:
    """Invariant 3: whatever the moment of a crash, the next start recomputes the same updates, bit for bit."""

    async def test_killed_after_any_event_a_learner_resumes_to_the_very_same_run(
        self, tmp_path: Path
    ) -> None:
        settings = settings_with(**SMALL)
        fresh = await bench(tmp_path / "fresh", batches=2, settings=settings)
        whole = await copy_of(fresh, tmp_path / "whole")
        await learn(whole, until=4)
        expected = what_was_learned(await events_of(whole.log))
        assert {"SamplesSwept", "BlobReleased", "CheckpointSaved"} <= set(kinds(expected))
        for number in range(1, len(expected) + 1):
            cut = await copy_of(fresh, tmp_path / f"cut{number}")
            with pytest.raises(Killed):
                await learn(cut, log=Watched(cut.log, number, after=die))
            assert what_was_learned(await events_of(cut.log)) == expected[:number]
            await learn(cut, until=4)
            assert what_was_learned(await events_of(cut.log)) == expected, f"killed after event {number}"

    async def test_killed_again_and_again_it_still_verifies(self, tmp_path: Path) -> None:
        made = await bench(tmp_path)
        for _ in range(6):
            with pytest.raises(Killed):
                await learn(made, log=Watched(made.log, 3, after=die))
        await learn(made, until=6)
        report = await verify(made.log, made.blobs, policy=made.policy)
        assert (report.identical, report.updates) == (True, 6)

    async def test_it_stops_at_the_update_asked_for_and_goes_on_there(self, tmp_path: Path) -> None:
        fresh = await bench(tmp_path / "fresh")
        whole = await copy_of(fresh, tmp_path / "whole")
        await learn(whole, until=6)
        for goal in (1, 3, 3, 4, 6):
            report = await learn(fresh, until=goal)
            assert report.updates == goal
        assert what_was_learned(await events_of(fresh.log)) == what_was_learned(await events_of(whole.log))
        assert report.recomputed == 0  # it resumed at a checkpoint
        assert (await learn(fresh, until=2)).updates == 6

    async def test_the_middle_of_a_batch_keeps_the_proximal_policy_of_its_start(self, tmp_path: Path) -> None:
        made = await bench(tmp_path, batches=1)
        await learn(made, until=1)
        assert (await facts_of(made, WeightsPublished))[-1].version == 0
        report = await learn(made, until=2)
        assert report.recomputed == 1
        second = (await facts_of(made, UpdateApplied))[1]
        # pi_prox is the policy that sampled, not the one after update 1
        assert second.metrics["mismatch_max"] < 1e-5
        assert second.metrics["ratio_mean"] != pytest.approx(1.0, abs=1e-7)


class TestCheckpoints:
    """Invariant 1: a checkpoint is only a faster start."""

    async def damaged(self, folder: Path, which: slice) -> Bench:
        """Four updates, an unfinished batch, and damaged checkpoints."""
        made = await bench(folder)
        await learn(made, until=5)
        for saved in (await facts_of(made, CheckpointSaved))[which]:
            path = made.blobs.path(saved.blob)
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 1
            path.write_bytes(content)
        return made

    @pytest.mark.parametrize(
        ("which", "recomputed"), [(slice(0, 0), 1), (slice(-1, None), 3), (slice(None), 5)]
    )
    async def test_a_damaged_one_is_passed_over_for_an_older_one_or_the_base(
        self, tmp_path: Path, which: slice, recomputed: int
    ) -> None:
        made = await self.damaged(tmp_path, which)
        with structlog.testing.capture_logs() as lines:
            report = await learn(made, until=6)
        warned = [line["reason"] for line in lines if line["log_level"] == "warning"]
        assert (report.updates, report.recomputed) == (6, recomputed)
        assert len(warned) == {1: 0, 3: 1, 5: 2}[recomputed]
        assert all("cannot be read" in reason and "damaged" in reason for reason in warned)
        assert (await verify(made.log, made.blobs, policy=made.policy)).identical

    async def test_without_any_checkpoint_file_the_log_is_enough(self, tmp_path: Path) -> None:
        made = await bench(tmp_path)
        await learn(made, until=5)
        for saved in await facts_of(made, CheckpointSaved):
            made.blobs.release(saved.blob)
        assert (await learn(made, until=6)).recomputed == 5

    async def test_without_the_base_weights_it_says_so(self, tmp_path: Path) -> None:
        made = await bench(tmp_path)
        for path in folder_of(made.blobs).rglob("*"):
            if path.is_file():
                path.unlink()
        with pytest.raises(BlobMissing, match="an event names it"):
            await learn(made, until=1)

    async def test_another_result_than_the_recorded_one_is_a_worded_error(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = await bench(tmp_path, settings=settings_with(checkpoint_every=10))
        await learn(made, until=3)
        monkeypatch.setattr("hindcast.learner.update.BETAS", (0.5, 0.999))  # as if the code had changed
        with pytest.raises(
            ReplayDiverged, match=r"position \d+ does not come out as recorded: weights.*Ways out"
        ):
            await learn(made, until=4)

    async def test_old_weights_go_by_an_event_and_the_base_and_the_latest_stay(self, tmp_path: Path) -> None:
        settings = settings_with(keep_weights=2, keep_weights_every=3, keep_checkpoints=1)
        made = await bench(tmp_path, batches=5, settings=settings)
        await learn(made, until=10)
        published = {f.version: f.weights for f in await facts_of(made, WeightsPublished)}
        assert [v for v, blob in published.items() if made.blobs.has(blob)] == [0, 3, 4, 5]
        saved = [f.blob for f in await facts_of(made, CheckpointSaved)]
        assert [made.blobs.has(blob) for blob in saved] == [False, False, False, False, True]
        released = {f.blob for f in await facts_of(made, BlobReleased)}
        assert released == {*saved[:-1], published[1], published[2]}

    async def test_what_a_crash_left_after_its_release_is_deleted_at_the_next_start(
        self, tmp_path: Path
    ) -> None:
        made = await bench(tmp_path, batches=2, settings=settings_with(keep_checkpoints=1, keep_weights=2))
        with pytest.raises(Killed):
            await learn(made, log=Watched(made.log, 13, after=die))
        (released,) = await facts_of(made, BlobReleased)
        assert made.blobs.has(released.blob)
        await learn(made, until=4)
        assert not made.blobs.has(released.blob)
        assert (await verify(made.log, made.blobs, policy=made.policy)).identical


class TestFencing:
    """Invariant 8: one writer per chain."""

    @pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 6, 8])
    async def test_a_second_learner_is_fenced_off(self, tmp_path: Path, number: int) -> None:
        made = await bench(tmp_path)
        others: list[asyncio.Task[LearnerReport]] = []

        async def overtake() -> None:
            others.append(asyncio.create_task(learn(made, until=6)))
            await asyncio.shield(others[0])

        with pytest.raises(ExpectationFailed, match="another learner writes to run r_test"):
            await learn(made, until=6, log=Watched(made.log, number, before=overtake))
        assert (await others[0]).updates == 6
        assert [u.update for u in await facts_of(made, UpdateApplied)] == [1, 2, 3, 4, 5, 6]
        assert (await verify(made.log, made.blobs, policy=made.policy)).identical

    async def test_one_that_stood_still_while_another_took_over_ends_and_trains_nothing_on_its_old_model(
        self, tmp_path: Path
    ) -> None:
        """As after SIGSTOP: what the other did arrives all at once, and none of it is in this one's model."""
        made = await bench(tmp_path, batches=1)
        stopped = Stopped(made.log)
        first = asyncio.create_task(learn(made, log=stopped))
        async with asyncio.timeout(30):
            while len(await facts_of(made, CheckpointSaved)) < 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        stopped.goes.clear()
        for _ in range(2):
            await tell(made.log, made.story.group(*informative(version=1)))
        await learn(made, until=4)
        for _ in range(2):
            await tell(made.log, made.story.group(*informative(version=2)))
        stopped.goes.set()
        with pytest.raises(ExpectationFailed, match=r"another learner writes to run r_test: learner\.1"):
            await first
        assert len(await facts_of(made, UpdateApplied)) == 4
        assert (await learn(made, until=6)).updates == 6
        assert (await verify(made.log, made.blobs, policy=made.policy)).identical

    async def test_a_log_without_a_run_is_refused(self, tmp_path: Path) -> None:
        made = await bench(tmp_path)
        with pytest.raises(ForeignLog, match="does not begin with run"):
            await learn(made, log=MemoryLog("other"))  # type: ignore[arg-type]


class TestRunning:
    """The event loop stays free, waits have bounds, a stop takes effect at once."""

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(30):
            while not await condition():  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def test_it_trains_on_what_arrives_while_it_runs(self, tmp_path: Path) -> None:
        made = await bench(tmp_path, batches=0)
        async with asyncio.TaskGroup() as group:
            learning = group.create_task(learn(made, until=4))
            for _ in range(4):
                await tell(made.log, made.story.group(*informative()))
                await asyncio.sleep(0.05)
        assert learning.result().version == 2
        assert (await verify(made.log, made.blobs, policy=made.policy)).identical

    async def test_what_is_too_old_is_swept_before_the_next_plan(self, tmp_path: Path) -> None:
        settings = settings_with(max_staleness=0)
        made = await bench(tmp_path, batches=2, settings=settings)
        learning = asyncio.create_task(learn(made, until=4))
        await self.until(lambda: self._swept(made, "stale"))
        for _ in range(2):
            await tell(made.log, made.story.group(*informative(version=1)))
        assert (await learning).updates == 4
        planned = await facts_of(made, BatchPlanned)
        assert {e.group for e in planned[1].episodes} == {"group_6", "group_7"}
        assert (await verify(made.log, made.blobs, policy=made.policy)).identical

    async def _swept(self, made: Bench, reason: str) -> bool:
        return any(
            fact.reason == reason
            for fact in what_was_learned(await events_of(made.log))
            if hasattr(fact, "reason")
        )

    async def test_waiting_too_long_is_recorded_and_goes_on(self, tmp_path: Path) -> None:
        made = await bench(tmp_path, batches=0, settings=settings_with(batch_wait_s=0.05))
        learning = asyncio.create_task(learn(made, until=2))

        async def waited() -> bool:
            return len(await facts_of(made, WaitExceeded)) >= 2

        await self.until(waited)
        for _ in range(2):
            await tell(made.log, made.story.group(*informative()))
        assert (await learning).updates == 2
        fact = (await facts_of(made, WaitExceeded))[0]
        assert (fact.setting, fact.limit_s) == ("learner.batch_wait_s", 0.05)

    async def test_a_cancelled_update_is_thrown_away_and_computed_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fresh = await bench(tmp_path / "fresh", batches=1)
        whole = await copy_of(fresh, tmp_path / "whole")
        await learn(whole, until=2)
        entered, step = threading.Event(), Training.step

        def slow(self: Training, index: int) -> Any:
            entered.set()
            self._stop.wait(20)
            return step(self, index)

        beats = 0
        with monkeypatch.context() as patched:
            patched.setattr(Training, "step", slow)
            learning = asyncio.create_task(learn(fresh))
            while not entered.is_set():  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            for beats in range(1, 20):  # an update is under way: the loop is free  # noqa: B007
                await asyncio.sleep(0.001)
            began = time.monotonic()
            learning.cancel()
            with pytest.raises(asyncio.CancelledError):
                await learning
            assert time.monotonic() - began < 10, "the update was waited for"
        assert beats == 19
        assert kinds(await facts_of(fresh, BatchPlanned, UpdateApplied)) == ["BatchPlanned"]
        await learn(fresh, until=2)
        assert what_was_learned(await events_of(fresh.log)) == what_was_learned(await events_of(whole.log))

    async def test_an_update_without_a_finite_gradient_changes_nothing_and_is_recorded(
        self, tmp_path: Path
    ) -> None:
        made = await bench(tmp_path, batches=2, settings=settings_with(learning_rate=1e30, warmup_updates=0))
        learning = asyncio.create_task(learn(made))

        async def skipped() -> bool:
            return len(await facts_of(made, WeightsPublished)) == 3

        await self.until(skipped)
        learning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await learning
        first, *others = await facts_of(made, UpdateApplied, UpdateSkipped)
        assert isinstance(first, UpdateApplied)
        assert kinds(others) == ["UpdateSkipped"] * 3
        assert {skip.state for skip in others} == {first.after}
        assert "nan" in others[0].reason
        report = await verify(made.log, made.blobs, policy=made.policy)
        assert (report.identical, report.updates) == (True, 4)


class TestAlgorithms:
    """Every algorithm and option runs through the same loop and verifies."""

    @pytest.mark.parametrize(
        "learner",
        [
            {"loss_mean": "token"},
            {"correction": "none"},
            {"correction": "truncated", "cloning_coefficient": 0.1},
            {"correction": "masked", "kl_coefficient": 0.0},
            {"group_batch": 1, "minibatches": 3, "weight_decay": 0.1},
        ],
        ids=str,
    )
    async def test_an_option_of_grpo(self, tmp_path: Path, learner: dict[str, Any]) -> None:
        await self.check(tmp_path, settings_with(**learner))

    async def check(self, folder: Path, settings: Settings) -> list[UpdateApplied]:
        made = await bench(folder, settings=settings)
        await learn(made, until=3)
        assert (await verify(made.log, made.blobs, policy=made.policy)).identical
        return await facts_of(made, UpdateApplied)

    async def test_the_token_mean_learns_something_else_than_the_nested_means(self, tmp_path: Path) -> None:
        nested = await self.check(tmp_path / "nested", settings_with())
        token = await self.check(tmp_path / "token", settings_with(loss_mean="token"))
        assert nested[0].before == token[0].before
        assert nested[0].samples.advantages == token[0].samples.advantages
        assert nested[0].samples.weights != token[0].samples.weights
        assert nested[0].after != token[0].after

    async def test_cloning_lowers_its_loss(self, tmp_path: Path) -> None:
        settings = settings_with(algorithm="cloning", cloning_batch=8, cloning_epochs=20, minibatches=1)
        made = await bench(tmp_path, batches=0, settings=settings)
        for _ in range(4):
            await tell(made.log, made.story.group(Member(1.0, 3, origin="demonstration", version=-1)))
        await learn(made, until=20)
        losses = [u.metrics["loss"] for u in await facts_of(made, UpdateApplied)]
        assert losses[-1] < 0.8 * losses[0]
        assert (await verify(made.log, made.blobs, policy=made.policy)).identical


async def test_packing_changes_no_result_beyond_rounding(tmp_path: Path) -> None:
    found = []
    for tokens in (16, 64, 4096):
        made = await bench(
            tmp_path / str(tokens), batches=1, settings=settings_with(tokens_per_forward=tokens)
        )
        await learn(made, until=1)
        found.append((await facts_of(made, UpdateApplied))[0])
    for other in found[1:]:
        assert other.inputs == found[0].inputs
        assert other.samples.weights == found[0].samples.weights
        for name in ("kl", "entropy_estimate", "ratio_mean", "gradient_norm"):
            assert other.metrics[name] == pytest.approx(found[0].metrics[name], rel=1e-4, abs=1e-6)
        assert other.metrics["loss"] == pytest.approx(found[0].metrics["loss"], abs=1e-6)
