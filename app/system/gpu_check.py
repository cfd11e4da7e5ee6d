"""`hindcast doctor`'s findings about GPUs: a pure function of what was probed and of the settings."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hindcast.core.models.engine import find_engine
from hindcast.core.models.folder_check import CheckFinding
from hindcast.core.settings.schema import Settings

if TYPE_CHECKING:
    from hindcast.core.models.gpu_probe import GpuFacts

REPEATABLE = (":4096:8", ":16:8")
"""Values of CUBLAS_WORKSPACE_CONFIG with which torch accepts cuBLAS as deterministic."""


def gpu_findings(facts: "GpuFacts", settings: Settings) -> list[CheckFinding]:
    """Report the GPUs and whether these settings can use them. Without a GPU it is one row."""
    if not facts.devices:
        return [_without_gpu(facts, settings)]
    return [
        _gpus(facts, settings),
        _chosen(facts, settings),
        _cuda(facts),
        _bf16(facts, settings),
        _nccl(facts, settings),
        _repeatable(facts),
    ]


def _without_gpu(facts: "GpuFacts", settings: Settings) -> CheckFinding:
    means = "learner and in-process engine compute on the CPU, which is enough for models of some ten million parameters"
    for key, wanted in (
        ("learner.device", settings.learner.device),
        ("policy.device", settings.policy.device),
    ):
        if wanted == "cuda":
            return CheckFinding(
                part="gpu",
                verdict="failed",
                result=f"none that torch {facts.torch} sees, and {key} = 'cuda'",
                fix=_remedy(facts)
                or f"Run these processes on a machine with a GPU (hindcast join --roles), or set {key} to auto.",
            )
    if remedy := _remedy(facts):
        return CheckFinding(
            part="gpu",
            verdict="note",
            result=f"one is here, and torch {facts.torch} does not see it: {means}",
            fix=remedy,
        )
    return CheckFinding(part="gpu", verdict="ok", result=f"none: {means}")


def _remedy(facts: "GpuFacts") -> str:
    """What makes torch see a GPU that is here; empty if none is."""
    if not facts.present:
        return ""
    if facts.visible == "":
        return "CUDA_VISIBLE_DEVICES is empty and hides all GPUs: unset it."
    if not facts.cuda:
        return "Install a torch that was built for CUDA: pip install --force-reinstall torch (not from the index of CPU builds)."
    return f"Look at nvidia-smi: the driver ({facts.driver or 'not found'}) may be too old for CUDA {facts.cuda}, or the device is not given to this container."


def _gpus(facts: "GpuFacts", settings: Settings) -> CheckFinding:
    kinds = Counter((one.name, round(one.memory_gib)) for one in facts.devices)
    result = ", ".join(f"{count} x {name} with {gib} GiB" for (name, gib), count in kinds.items())
    count = len(facts.devices)
    for key, needed in _needed(settings):
        if needed > count:
            return CheckFinding(
                part="gpu",
                verdict="failed",
                result=f"{result}; {key} needs {needed} GPUs",
                fix=f"Change {key}, or run: hindcast size --gpus {count} --emit settings.toml",
            )
    if len(kinds) > 1:
        return CheckFinding(
            part="gpu",
            verdict="note",
            result=f"{result}: of different kinds",
            fix="The slowest sets the pace, and different kinds give different bits: choose equal ones by CUDA_VISIBLE_DEVICES.",
        )
    return CheckFinding(part="gpu", verdict="ok", result=result)


def _chosen(facts: "GpuFacts", settings: Settings) -> CheckFinding:
    """What the settings of device and precision mean on this machine."""
    learner, policy = settings.learner, settings.policy
    precision = learner.precision
    if precision == "auto":
        bf16 = learner.device != "cpu" and all(one.bf16 for one in facts.devices)
        precision = "bf16" if bf16 else "float32"
    on_gpu = {
        name: wanted != "cpu"
        for name, wanted in (("learner", learner.device), ("policy", policy.model_device))
    }
    places = {name: f"on {'a GPU' if uses else 'the CPU'}" for name, uses in on_gpu.items()}
    computed = "the policy" if find_engine(policy.engine).traits.computes_here else "evaluations and judges"
    result = (
        f"the learner computes {places['learner']} in {precision}, {computed} {places['policy']} in float32 (policy.device = "
        f"{policy.device!r})"
    )
    if any(on_gpu.values()):
        return CheckFinding(part="device", verdict="ok", result=result)
    return CheckFinding(
        part="device", verdict="note", result=result, fix="To use the GPU set learner.device to auto."
    )


def _needed(settings: Settings) -> Iterator[tuple[str, int]]:
    """Settings that need a number of GPUs of this machine."""
    if settings.learner.device != "cpu":
        yield "learner.processes", settings.learner.processes
    if find_engine(settings.policy.engine).traits.uses_policy_servers and settings.vllm.gpus:
        yield "vllm.gpus", max(settings.vllm.gpus) + 1


def _cuda(facts: "GpuFacts") -> CheckFinding:
    driver = f"driver {facts.driver}" if facts.driver else "driver version not found"
    return CheckFinding(
        part="cuda", verdict="ok", result=f"torch {facts.torch} for CUDA {facts.cuda}, {driver}"
    )


def _bf16(facts: "GpuFacts", settings: Settings) -> CheckFinding:
    without = [one.name for one in facts.devices if not one.bf16]
    if not without:
        return CheckFinding(part="bf16", verdict="ok", result="computed by every GPU")
    wanted = settings.learner.precision == "bf16"
    return CheckFinding(
        part="bf16",
        verdict="failed" if wanted else "note",
        result=f"not computed by {without[0]}{', and learner.precision = ' + repr('bf16') if wanted else ''}",
        fix="Set learner.precision to float32 and vllm.dtype to float16, or use GPUs of compute capability 8.0 or newer.",
    )


def _nccl(facts: "GpuFacts", settings: Settings) -> CheckFinding:
    if facts.nccl:
        return CheckFinding(
            part="nccl", verdict="ok", result=f"NCCL {facts.nccl}, which connects the learner's processes"
        )
    return CheckFinding(
        part="nccl",
        verdict="failed" if settings.learner.processes > 1 else "note",
        result="torch has none: a learner can use one GPU only",
        fix="Install torch's build for Linux and CUDA, or leave learner.processes at 1.",
    )


def _repeatable(facts: "GpuFacts") -> CheckFinding:
    if facts.workspace is None or facts.workspace in REPEATABLE:
        value = facts.workspace or f"{REPEATABLE[0]}, set by the learner"
        return CheckFinding(
            part="bits", verdict="ok", result=f"deterministic kernels: CUBLAS_WORKSPACE_CONFIG={value}"
        )
    return CheckFinding(
        part="bits",
        verdict="failed",
        result=f"CUBLAS_WORKSPACE_CONFIG={facts.workspace}: cuBLAS adds in no fixed order, and torch refuses to compute",
        fix=f"Unset it, or set it to {REPEATABLE[0]}.",
    )
