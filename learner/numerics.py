"""Reproducible floating-point results: threads, deterministic kernels, and a fingerprint of everything else.

The same holds on one GPU: torch refuses kernels that add in no fixed order, and cuBLAS gets a workspace of its own per stream.
Guarantee: with the same `Fingerprint`, the same inputs give the same bits in every process. Measured: AVX-512, AVX2 and
no vector instructions give three different results, and so may two processor models with the same ones; one thread and two
gave the same.
"""

import os
import platform
import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import structlog
import torch

from hindcast.core.models.arithmetic import device_for, precision_for
from hindcast.core.models.gpu_probe import probe_gpus
from hindcast.core.settings.computing import Device, WantedPrecision
from hindcast.core.settings.schema import LearnerSettings
from hindcast.events.catalogue.run import Fingerprint

ACCELERATOR = " + "
"""Separates platform and GPU in a fingerprint."""
PRECISION = "precision"
"""Detail of a fingerprint: what `learner.precision = "auto"` chose on a GPU."""
COLLECTIVES = {"NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple", "NCCL_NVLS_ENABLE": "0"}
"""Environment of NCCL: one algorithm and protocol, whose order of additions does not depend on sizes."""
KERNEL_VARIABLES = (
    "ATEN_CPU_CAPABILITY",
    "DNNL_MAX_CPU_ISA",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "NVIDIA_TF32_OVERRIDE",
    "ONEDNN_MAX_CPU_ISA",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
)
"""Environment variables by which matrix libraries choose kernels."""
_log = structlog.get_logger()


def configure(threads: int) -> None:
    """Set everything that affects reproducibility. Call once at the start of a process, before any computation.

    `threads`: per operation, `learner.threads` in the settings.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when a GPU is first computed on
    os.environ.setdefault("FLASH_ATTENTION_DETERMINISTIC", "1")  # read by transformers
    torch.set_num_threads(threads)
    if torch.get_num_interop_threads() != 1:
        try:
            torch.set_num_interop_threads(1)
        except RuntimeError:  # this process has computed before; our graphs use one thread anyway
            _log.info("interop threads stay as they are", threads=torch.get_num_interop_threads())
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False  # convolutions; on by default
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False


def configure_collectives() -> None:
    """Fix how GPUs add up, for every process alike. Call before the process group is joined.

    torch itself excludes NVLS from `NCCL_ALGO` where it is deterministic; processes that read another value would wait for each
    other for ever.
    """
    for name, value in COLLECTIVES.items():
        os.environ.setdefault(name, value)


def fingerprint(
    threads: int, device: Device = "cpu", processes: int = 1, precision: WantedPrecision = "float32"
) -> Fingerprint:
    """Machine and library versions, as far as they affect bits. Works without `configure`.

    `device`, `processes`, `precision`: as `learner.device` and so on in the settings.
    """
    return Fingerprint(
        cpu_capability=torch.backends.cpu.get_cpu_capability(),
        threads=threads,
        blas=_blas(),
        torch=str(torch.__version__),
        transformers=version("transformers"),
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}{_accelerator(device)}{_together(processes)}",
        processor=processor(Path("/proc/cpuinfo")),
        details=_details(device, processes, precision),
    )


def fingerprint_of(settings: LearnerSettings) -> Fingerprint:
    """Fingerprint of a learner with these settings on this machine."""
    return fingerprint(settings.threads, settings.device, settings.processes, settings.precision)


def device_then(recorded: Fingerprint) -> Device:
    """The `learner.device` that selects the kind of device a run was recorded on."""
    return "auto" if ACCELERATOR in recorded.platform else "cpu"


def precision_then(recorded: Fingerprint, setting: WantedPrecision) -> WantedPrecision:
    """The precision that a run was recorded with: that of its settings, or what `auto` chose on a GPU."""
    precision = recorded.details.get(PRECISION)
    return "bf16" if precision == "bf16" else "float32" if precision else setting


def _details(device: Device, processes: int, precision: WantedPrecision) -> dict[str, str]:
    """Facts beyond the fields of a fingerprint, by name; those without a value are left out."""
    details = {name: os.environ.get(name, "") for name in KERNEL_VARIABLES}
    gpu = device_for(device)
    if gpu.type == "cuda":
        facts, properties = probe_gpus(), torch.cuda.get_device_properties(gpu)
        details |= {
            "driver": facts.driver,
            "cudnn": str(torch.backends.cudnn.version() or ""),  # type: ignore[no-untyped-call]
            "multiprocessors": str(properties.multi_processor_count),
            "capability": f"{properties.major}.{properties.minor}",
            "flash-attn": _version("flash-attn"),
            PRECISION: precision_for(precision, gpu) if precision == "auto" else "",
        }
        if processes > 1:
            details |= {"nccl": facts.nccl} | {name: os.environ.get(name, "") for name in COLLECTIVES}
    return {name: value for name, value in details.items() if value}


def _version(distribution: str) -> str:
    """Version of an installed distribution; empty: it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def _accelerator(device: Device) -> str:
    """Name of the GPU and release of CUDA; empty: no GPU."""
    gpu = device_for(device)
    if gpu.type == "cpu":
        return ""
    return f"{ACCELERATOR}{torch.cuda.get_device_name(gpu)} CUDA {torch.version.cuda}"


def _together(processes: int) -> str:
    """Number of processes that sum a gradient; empty: one."""
    return f" in {processes} processes" if processes > 1 else ""


def processor(table: Path) -> str:
    """First processor of Linux's table as `vendor family/model`; elsewhere Python's name of it."""
    try:
        lines = table.read_text().split("\n\n", 1)[0].splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if "vendor_id" not in facts:
        return platform.processor() or platform.machine()
    return f"{facts['vendor_id']} {facts.get('cpu family', '?')}/{facts.get('model', '?')}"


def _blas() -> str:
    """Name and version of the matrix library, such as `mkl 2024.2`."""
    name = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    release = re.search(r"Math Kernel Library Version (\S+?)-", torch.__config__.parallel_info())
    return " ".join(match.group(1) for match in (name, release) if match) or "unknown"


def differences(recorded: Fingerprint, current: Fingerprint) -> list[str]:
    """Differences in words, such as `torch 2.13.0 then, 2.12.1 now`."""
    return [
        f"{name} {before or 'not noted'} then, {today or 'not set'} now"
        for name, before, today in _pairs(recorded, current)
        if before != today
    ]


def _pairs(recorded: Fingerprint, current: Fingerprint) -> Iterator[tuple[str, Any, Any]]:
    for name in recorded.__struct_fields__:
        if name != "details":
            yield name, getattr(recorded, name), getattr(current, name)
    for name in sorted(recorded.details.keys() | current.details.keys()):
        yield name, recorded.details.get(name), current.details.get(name)


def other_accelerator(recorded: Fingerprint, current: Fingerprint) -> str:
    """Why updates that were computed on another kind of device cannot come out bit for bit; empty: it is the same kind."""
    before, today = (fingerprint.platform.partition(ACCELERATOR)[2] for fingerprint in (recorded, current))
    if before == today:
        return ""
    return f"were computed on {before or 'a processor'}, and this machine has {today or 'no GPU that torch can use'}"
