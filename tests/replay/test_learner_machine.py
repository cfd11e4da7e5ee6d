"""Which machine computed the updates: recorded by the learner itself, followed by `verify`, and named where it differs."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
import torch
from typer.testing import CliRunner

from fakes.tiny_policy import write_tiny_policy
from hindcast.app.cli import app
from hindcast.core.settings.changes import decode_settings
from hindcast.core.settings.schema import LearnerSettings
from hindcast.events.catalogue import (
    BatchPlanned,
    CheckpointSaved,
    LearnerStarted,
    RunResumed,
    RunStarted,
    UpdateApplied,
)
from hindcast.events.catalogue.run import Fingerprint
from hindcast.events.log.memory import MemoryLog
from hindcast.learner import loop, numerics, policy_models
from hindcast.learner.distributed import rendezvous
from hindcast.learner.distributed.rendezvous import Place
from hindcast.learner.numerics import (
    COLLECTIVES,
    KERNEL_VARIABLES,
    configure,
    configure_collectives,
    differences,
    fingerprint,
    other_accelerator,
)
from hindcast.learner.training import Training
from hindcast.learner.verify.log_recomputer import LogRecomputer
from hindcast.learner.verify.verify import OtherDevice, VerifyReport, verify
from hindcast.storage.archive.archiver import Archiver
from stories.archive_story import open_writer
from stories.forging import all_of, forge, with_field
from stories.training_story import RUN, Bench, Told, bench, learn, settings_with, tell

pytestmark = pytest.mark.torch

GPU = " + NVIDIA H200 CUDA 12.8"


def with_gpu(found: Fingerprint) -> Fingerprint:
    return msgspec.structs.replace(found, platform=found.platform + GPU, details={"driver": "570.1"})


def records_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The learner says that it computes on a GPU, which the machine that opened the run does not have."""
    own = loop.fingerprint_of
    monkeypatch.setattr(loop, "fingerprint_of", lambda settings: with_gpu(own(settings)))


async def started(made: Bench) -> list[LearnerStarted]:
    return [cast(LearnerStarted, one.fact) for one in await all_of(made, LearnerStarted)]


async def test_nothing_is_recorded_where_the_run_was_opened_on_the_learner_s_machine(tmp_path: Path) -> None:
    made = await bench(tmp_path)
    await learn(made, until=2)
    assert not await started(made)


async def test_a_learner_on_another_machine_records_it_before_its_first_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records_another_machine(monkeypatch)
    made = await bench(tmp_path)
    await learn(made, until=2)
    await learn(made, until=3)
    (fact,) = await started(made)
    assert fact.fingerprint.platform.endswith(GPU)
    (position,) = [one.position for one in await all_of(made, LearnerStarted)]
    assert position < min([one.position for one in await all_of(made, UpdateApplied)])


async def test_a_model_is_probed_for_packing_in_its_precision_and_only_where_it_packs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probed: list[str] = []

    def computes_packed_alike(_model: Any, precision: str) -> bool:
        probed.append(precision)
        return False

    monkeypatch.setattr(policy_models, "computes_packed_alike", computes_packed_alike)
    await learn(await bench(tmp_path / "padded"), until=1)
    assert not probed
    packing = settings_with(packed_sequences=True, precision="bf16")
    await learn(await bench(tmp_path / "packed", settings=packing), until=1)
    assert probed == ["bf16"]


async def test_another_kind_of_device_is_named_before_anything_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records_another_machine(monkeypatch)
    made = await bench(tmp_path)
    await learn(made, until=2)

    def make_trainer(*_: Any, **__: Any) -> Any:
        raise AssertionError("it has computed")

    words = r"computed on NVIDIA H200 CUDA 12\.8, and this machine has no GPU.*verify r_test --tolerance"
    with pytest.raises(OtherDevice, match=words):
        await verify(made.log, made.blobs, policy=made.policy, make_trainer=make_trainer)


async def test_verify_continues_on_the_device_that_the_learner_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await bench(tmp_path)
    await learn(made, until=2)
    records_another_machine(monkeypatch)
    await learn(made, until=4)
    devices: list[str] = []

    def make_trainer(*given: Any, settings: Any, **more: Any) -> Training:
        devices.append(settings.device)
        return Training(*given, settings=settings, **more)

    report = await verify(made.log, made.blobs, policy=made.policy, make_trainer=make_trainer, tolerance=1e-6)
    assert report.within_tolerance, report.first_divergence
    assert report.identical, "its weights and optimizer moved along"
    assert report.updates == 4
    assert devices == ["cpu", "auto"]


@contextmanager
def on_a_gpu() -> Iterator[None]:
    """Learners within the block record a GPU. Their bits are the processor's, as those of a real GPU would not be."""
    with pytest.MonkeyPatch.context() as patch:
        records_another_machine(patch)
        yield


async def resumed(made: Bench, machine: Fingerprint) -> None:
    fact = RunResumed(after_position=len(made.log.events), fingerprint=machine, until={})
    await tell(made.log, [Told("app", RUN, fact)])


def other_numbers(fact: Any) -> Any:
    """An update as another device computes it."""
    metrics = {name: value * 1.0001 for name, value in fact.metrics.items()}
    return msgspec.structs.replace(fact, metrics=metrics)


@pytest.fixture
async def moved(tmp_path: Path) -> Bench:
    """Updates 1 and 2 on the processor, 3 and 4 on a GPU, 5 and 6 on the processor; a checkpoint after each batch."""
    policy = write_tiny_policy(tmp_path / "policy")
    settings = settings_with(checkpoint_every=1, keep_checkpoints=9).model_dump(mode="json")
    settings["policy"]["base"] = str(policy)
    made = await bench(tmp_path, settings=decode_settings(settings), policy=policy)
    await learn(made, until=2)
    with on_a_gpu():
        await learn(made, until=4)
    await learn(made, until=6)
    for update in (await all_of(made, UpdateApplied))[2:4]:
        forge(made.log, update.position, other_numbers, digests=True)
    return made


async def updates_at(made: Bench, first: int, last: int) -> tuple[int, int]:
    updates = await all_of(made, UpdateApplied)
    return updates[first - 1].position, updates[last - 1].position


async def checked(made: Bench, **options: Any) -> VerifyReport:
    return await verify(made.log, made.blobs, policy=made.policy, code_rev="test", **options)


class TestSeveralMachines:
    """A run whose updates were computed on a processor, then on a GPU, then on the processor again."""

    @pytest.mark.parametrize("shared", [False, True])
    async def test_what_this_machine_can_repeat_is_recomputed_and_the_rest_is_named(
        self, moved: Bench, *, shared: bool
    ) -> None:
        recomputers = [
            LogRecomputer(moved.log, moved.blobs, policy=moved.policy, code_rev="test", tolerance=None)
            for _ in range(2 * shared)
        ]
        report = await checked(moved, recomputers=recomputers)
        for one in recomputers:
            await one.close()
        assert report.first_divergence is None
        assert (report.updates, report.events) == (4, len(moved.log.events))
        (left_out,) = report.left_out
        first, last = await updates_at(moved, 3, 4)
        assert (left_out.updates, left_out.first, left_out.last) == (2, first, last)
        assert left_out.reason.startswith(
            f"updates 3 to 4 (positions {first} to {last}) were computed on NVIDIA H200 CUDA 12.8, and this machine has no GPU"
        )

    async def test_an_altered_update_is_found_after_those_of_another_device(self, moved: Bench) -> None:
        _, last = await updates_at(moved, 5, 6)
        forge(moved.log, last, other_numbers, digests=True)
        report = await checked(moved)
        assert report.first_divergence is not None
        assert report.first_divergence.position == last
        assert "altered" in report.first_divergence.cause

    async def test_without_a_checkpoint_to_begin_with_later_updates_are_left_out(self, moved: Bench) -> None:
        between = (await all_of(moved, CheckpointSaved))[1]
        moved.blobs.release(cast(CheckpointSaved, between.fact).blob)
        report = await checked(moved)
        assert (report.identical, report.updates) == (True, 2)
        gpu, after = report.left_out
        assert gpu.updates == 2
        assert (after.first, after.last) == await updates_at(moved, 5, 6)
        assert "no checkpoint between them is kept" in after.reason

    async def test_a_beginning_after_the_other_device_leaves_nothing_out(self, moved: Bench) -> None:
        begin = (await all_of(moved, CheckpointSaved))[1].position
        report = await checked(moved, since=begin)
        assert (report.identical, report.updates, report.left_out) == (True, 2, ())

    async def test_updates_drawn_by_number_are_left_out_alike(self, moved: Bench) -> None:
        second, fifth = await updates_at(moved, 2, 5)
        third, sixth = await updates_at(moved, 3, 6)
        report = await checked(
            moved, only=[(position, position) for position in (second, third, fifth, sixth)]
        )
        assert (report.identical, report.updates) == (True, 4)
        (left_out,) = report.left_out
        assert (left_out.first, left_out.last) == (third, third)
        with pytest.raises(OtherDevice, match="update 3 "):
            await checked(moved, only=[(third, third)])

    async def test_the_command_names_them_and_is_not_satisfied(self, moved: Bench, tmp_path: Path) -> None:
        writer = open_writer(tmp_path / "archive", run=moved.log.run)
        await Archiver(moved.log, moved.blobs, writer, pages=True).run(follow=False)
        writer.close()
        folder = str(tmp_path / "archive")
        found = await asyncio.to_thread(CliRunner().invoke, app, ["verify", folder])
        assert found.exit_code == 1, found.output
        words = " ".join(found.output.split())
        assert "not recomputed: updates 3 to 4 (positions" in words
        assert "Run: hindcast verify r_test --tolerance 1e-2" in words
        assert "identical, bit for bit, as far as recomputed" in words

    async def test_with_a_tolerance_all_are_recomputed(self, moved: Bench) -> None:
        report = await checked(moved, tolerance=1e-2)
        assert (report.within_tolerance, report.updates, report.left_out) == (True, 6, ())
        assert not report.identical


async def test_the_machine_of_a_resumed_run_is_followed_too(tmp_path: Path) -> None:
    """A run that began on a GPU and was resumed without one: its latest start says nothing about its first updates."""
    made = await bench(tmp_path, settings=settings_with(checkpoint_every=1, keep_checkpoints=9))
    own = cast(RunStarted, (await all_of(made, RunStarted))[0].fact).fingerprint
    forge(made.log, 1, with_field(fingerprint=with_gpu(own)), digests=True)
    with on_a_gpu():
        await learn(made, until=2)
    await resumed(made, own)
    await learn(made, until=4)
    assert not await started(made)
    for update in (await all_of(made, UpdateApplied))[:2]:
        forge(made.log, update.position, other_numbers, digests=True)
    report = await checked(made)
    assert (report.identical, report.updates, report.left_out[0].updates) == (True, 2, 2)
    devices: list[str] = []

    def make_trainer(*given: Any, settings: Any, **more: Any) -> Training:
        devices.append(settings.device)
        return Training(*given, settings=settings, **more)

    await checked(made, make_trainer=make_trainer, tolerance=1e-2)
    assert devices == ["auto", "cpu"]


async def test_a_learner_that_works_on_while_the_run_is_resumed_elsewhere_records_its_machine(
    tmp_path: Path,
) -> None:
    made = await bench(tmp_path)
    own = cast(RunStarted, (await all_of(made, RunStarted))[0].fact).fingerprint

    class Resumed(MemoryLog):
        """The run is resumed from a machine without a GPU when the first batch is planned."""

        async def append(self, records, **expected):  # type: ignore[no-untyped-def]
            positions = await super().append(records, **expected)
            if not self.resumed and await all_of(made, BatchPlanned):
                self.resumed = True
                await resumed(made, own)
            return positions

    log = Resumed(RUN)
    log.resumed = False  # type: ignore[attr-defined]
    log.events = made.log.events
    made = made._replace(log=log)
    with on_a_gpu():
        await learn(made, until=2)
    assert len(await all_of(made, RunResumed)) == 1
    places = [one.position for one in await all_of(made, LearnerStarted)]
    assert len(places) == 2
    assert places[-1] < (await updates_at(made, 1, 2))[0]


async def test_an_update_that_follows_from_another_machine_s_is_not_called_altered(tmp_path: Path) -> None:
    made = await bench(tmp_path, settings=settings_with(digest_every=3))
    own = cast(RunStarted, (await all_of(made, RunStarted))[0].fact).fingerprint
    older = msgspec.structs.replace(own, torch="2.9.0")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "fingerprint_of", lambda _settings: older)
        await learn(made, until=2)
    await resumed(made, own)
    await learn(made, until=4)
    third = (await all_of(made, UpdateApplied))[2]
    forge(made.log, third.position, other_numbers, digests=True)
    found = (await checked(made)).first_divergence
    assert found is not None
    assert found.position == third.position
    assert "torch 2.9.0 then" in found.cause
    assert "altered" not in found.cause


def test_details_are_compared_by_name() -> None:
    now = fingerprint(1)
    then = msgspec.structs.replace(now, details={"MKL_CBWR": "COMPATIBLE"})
    assert differences(then, now) == ["MKL_CBWR COMPATIBLE then, not set now"]
    assert differences(now, then) == ["MKL_CBWR not noted then, COMPATIBLE now"]
    assert other_accelerator(then, now) == ""
    assert other_accelerator(now, with_gpu(now)).startswith("were computed on a processor")


def test_variables_that_choose_kernels_are_part_of_the_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    assert fingerprint(1).details["MKL_CBWR"] == "COMPATIBLE"


def test_no_reduced_precision_is_left_on() -> None:
    torch.backends.cudnn.allow_tf32 = True
    configure(1)
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32
    assert not torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    assert torch.are_deterministic_algorithms_enabled()


def test_collectives_have_one_algorithm_unless_the_user_chose_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in COLLECTIVES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NCCL_ALGO", "Tree")
    configure_collectives()
    assert {name: os.environ[name] for name in COLLECTIVES} == COLLECTIVES | {"NCCL_ALGO": "Tree"}


class _Met(Exception):
    """Raised in place of joining a process group."""


def test_every_process_fixes_its_collectives_before_it_meets_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """torch writes another `NCCL_ALGO` where it is deterministic, and processes with different ones wait for ever."""
    for name in COLLECTIVES:
        monkeypatch.delenv(name, raising=False)
    found: dict[str, str | None] = {}

    def meet(_backend: str, **_: Any) -> None:
        found.update({name: os.environ.get(name) for name in COLLECTIVES})
        raise _Met

    monkeypatch.setattr(rendezvous, "device_for", lambda _setting: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "set_device", lambda _device: None)
    monkeypatch.setattr(rendezvous.dist, "init_process_group", meet)
    settings, store = LearnerSettings(processes=2), cast(Any, None)
    with pytest.raises(_Met), rendezvous.join_group(Place(1, 1, 2), store, settings):
        pass
    assert found == COLLECTIVES


def test_a_fingerprint_names_the_gpu_its_software_and_its_collectives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu = SimpleNamespace(multi_processor_count=132, major=9, minor=0, name="NVIDIA H200")
    facts = SimpleNamespace(driver="580.159", nccl="2.27.5")
    monkeypatch.setattr(numerics, "device_for", lambda _setting: torch.device("cuda", 0))
    monkeypatch.setattr(numerics, "probe_gpus", lambda: facts)
    monkeypatch.setattr(numerics, "precision_for", lambda _wanted, _gpu: "bf16")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _gpu: gpu)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _gpu: gpu.name)
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 91002)
    for name in KERNEL_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in COLLECTIVES.items():
        monkeypatch.setenv(name, value)
    found = fingerprint(1, "auto", 2, "auto")
    assert " + NVIDIA H200 CUDA " in found.platform
    assert found.details == {
        "driver": "580.159",
        "cudnn": "91002",
        "multiprocessors": "132",
        "capability": "9.0",
        "precision": "bf16",
        "nccl": "2.27.5",
        **COLLECTIVES,
    }
