"""`hindcast doctor` about GPUs: what it says of machines that this one is not, and of this one."""

from pathlib import Path

import msgspec
import pytest

from hindcast.app.system.doctor import examine_gpus
from hindcast.app.system.gpu_check import gpu_findings
from hindcast.core.models.folder_check import CheckFinding
from hindcast.core.models.gpu_probe import GpuDevice, GpuFacts, probe_gpus
from hindcast.core.settings.schema import Settings

H100 = GpuDevice(name="NVIDIA H100 80GB HBM3", memory_gib=79.6, bf16=True)
T4 = GpuDevice(name="Tesla T4", memory_gib=14.6, bf16=False)
EIGHT = GpuFacts(
    torch="2.13.0", cuda="13.0", driver="580.65.06", present=True, devices=(H100,) * 8, nccl="2.28.9"
)
NONE = GpuFacts(torch="2.13.0+cpu")
BOTH_ON_THE_CPU: dict[str, dict[str, object]] = {"learner": {"device": "cpu"}, "policy": {"device": "cpu"}}


def settings(**sections: dict[str, object]) -> Settings:
    return Settings.model_validate(sections)


def found(facts: GpuFacts, wanted: Settings | None = None) -> dict[str, CheckFinding]:
    return {one.part: one for one in gpu_findings(facts, wanted or Settings())}


def test_eight_equal_gpus_are_in_order_and_named() -> None:
    rows = found(EIGHT, settings(learner={"device": "cuda", "processes": 7, "precision": "bf16"}))
    assert {one.verdict for one in rows.values()} == {"ok"}
    assert rows["gpu"].result == "8 x NVIDIA H100 80GB HBM3 with 80 GiB"
    assert rows["cuda"].result == "torch 2.13.0 for CUDA 13.0, driver 580.65.06"
    assert "NCCL 2.28.9" in rows["nccl"].result
    assert "CUBLAS_WORKSPACE_CONFIG=:4096:8" in rows["bits"].result


def test_without_a_gpu_one_row_says_what_that_means() -> None:
    (row,) = gpu_findings(NONE, Settings())
    assert row.verdict == "ok"
    assert "none" in row.result
    assert "CPU" in row.result


def test_a_learner_that_needs_a_gpu_fails_without_one() -> None:
    (row,) = gpu_findings(NONE, settings(learner={"device": "cuda"}))
    assert row.verdict == "failed"
    assert "learner.device" in row.fix


@pytest.mark.parametrize(
    ("facts", "wanted", "said"),
    [
        (EIGHT, {}, "on a GPU in bf16, the policy on a GPU in float32 (policy.device = 'auto')"),
        (EIGHT, {"policy": {"device": "cpu"}}, "the policy on the CPU in float32 (policy.device = 'cpu')"),
        (EIGHT, {"policy": {"engine": "vllm"}}, "evaluations and judges on the CPU in float32"),
        (msgspec.structs.replace(EIGHT, devices=(T4,)), {}, "the learner computes on a GPU in float32"),
        (EIGHT, BOTH_ON_THE_CPU, "the learner computes on the CPU in float32, the policy on the CPU"),
    ],
)
def test_what_auto_means_on_this_machine_is_a_row(
    facts: GpuFacts, wanted: dict[str, dict[str, object]], said: str
) -> None:
    row = found(facts, settings(**wanted))["device"]
    assert said in row.result
    assert bool(row.fix) == (wanted == BOTH_ON_THE_CPU)


def test_a_policy_that_needs_a_gpu_fails_without_one() -> None:
    (row,) = gpu_findings(NONE, settings(policy={"device": "cuda"}))
    assert row.verdict == "failed"
    assert "policy.device" in row.fix


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        ({}, "built for CUDA"),
        ({"cuda": "13.0", "driver": "470.1"}, "driver (470.1) may be too old for CUDA 13.0"),
        ({"cuda": "13.0", "visible": ""}, "CUDA_VISIBLE_DEVICES is empty"),
    ],
)
def test_a_gpu_that_torch_does_not_see_is_a_note_with_its_remedy(change: dict[str, str], remedy: str) -> None:
    (row,) = gpu_findings(msgspec.structs.replace(NONE, present=True, **change), Settings())
    assert row.verdict == "note"
    assert remedy in row.fix


@pytest.mark.parametrize(
    ("wanted", "key"),
    [
        ({"learner": {"device": "cuda", "processes": 9}}, "learner.processes needs 9"),
        ({"policy": {"engine": "vllm"}, "vllm": {"gpus": (3, 8)}}, "vllm.gpus needs 9"),
    ],
)
def test_settings_that_need_more_gpus_fail(wanted: dict[str, dict[str, object]], key: str) -> None:
    row = found(EIGHT, settings(**wanted))["gpu"]
    assert row.verdict == "failed"
    assert key in row.result
    assert "--gpus 8" in row.fix


def test_gpus_of_different_kinds_and_without_bf16_are_noted() -> None:
    mixed = msgspec.structs.replace(EIGHT, devices=(H100, T4))
    rows = found(mixed)
    assert (rows["gpu"].verdict, rows["bf16"].verdict) == ("note", "note")
    assert "Tesla T4" in rows["bf16"].result
    assert found(mixed, settings(learner={"precision": "bf16"}))["bf16"].verdict == "failed"


def test_a_torch_without_nccl_can_train_on_one_gpu() -> None:
    without = msgspec.structs.replace(EIGHT, nccl="")
    assert found(without)["nccl"].verdict == "note"
    assert found(without, settings(learner={"processes": 2}))["nccl"].verdict == "failed"


@pytest.mark.parametrize(("value", "verdict"), [(":4096:8", "ok"), (":16:8", "ok"), (":0:0", "failed")])
def test_determinism_depends_on_cublas_workspace(value: str, verdict: str) -> None:
    assert found(msgspec.structs.replace(EIGHT, workspace=value))["bits"].verdict == verdict


@pytest.mark.torch
@pytest.mark.parametrize(
    "module", ["NVIDIA UNIX x86_64 Kernel Module", "NVIDIA UNIX Open Kernel Module for x86_64"]
)
def test_the_driver_is_read_from_its_file(module: str, tmp_path: Path) -> None:
    file = tmp_path / "version"
    file.write_text(f"NVRM version: {module}  580.65.06  Sun Jul 27 2025\nGCC version: 12.2.0\n")
    facts = probe_gpus({"CUBLAS_WORKSPACE_CONFIG": ":16:8"}, driver=file)
    assert (facts.driver, facts.workspace, facts.present) == ("580.65.06", ":16:8", True)


@pytest.mark.torch
async def test_this_machine_is_probed() -> None:
    rows = await examine_gpus(Settings())
    assert rows[0].part == "gpu"
    assert rows[0].verdict in ("ok", "note")
