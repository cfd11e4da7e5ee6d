"""Which machine computed the updates: recorded by the learner itself, followed by `verify`, and named where it differs."""

import os
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import torch

from hindcast.events.catalogue import LearnerStarted, UpdateApplied
from hindcast.events.catalogue.run import Fingerprint
from hindcast.learner import loop, policy_models
from hindcast.learner.numerics import (
    COLLECTIVES,
    configure,
    configure_collectives,
    differences,
    fingerprint,
    other_accelerator,
)
from hindcast.learner.training import Training
from hindcast.learner.verify.verify import OtherDevice, verify
from stories.forging import all_of
from stories.training_story import Bench, bench, learn, settings_with

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
