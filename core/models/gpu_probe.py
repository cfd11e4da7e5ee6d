"""What torch and the operating system say about this machine's GPUs. Nothing is computed on them."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec
import torch

DRIVER = Path("/proc/driver/nvidia/version")
DEVICE = Path("/dev/nvidia0")


class GpuDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU that torch sees."""

    name: str
    memory_gib: float
    bf16: bool
    """Whether it computes in bfloat16 itself (compute capability 8.0 or newer)."""


class GpuFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs of a machine, and the software that they are used with."""

    torch: str
    """Version of torch."""
    cuda: str = ""
    """CUDA release that torch was built for; empty: a build for CPUs, or for other GPUs."""
    driver: str = ""
    """Version of NVIDIA's driver; empty: not found."""
    present: bool = False
    """Whether the operating system has an NVIDIA GPU, whatever torch sees."""
    devices: tuple[GpuDevice, ...] = ()
    nccl: str = ""
    """Version of NCCL; empty: torch was built without it."""
    visible: str | None = None
    """`CUDA_VISIBLE_DEVICES`; None: not set."""
    workspace: str | None = None
    """`CUBLAS_WORKSPACE_CONFIG`; None: not set."""


def probe_gpus(environment: Mapping[str, str] = os.environ, *, driver: Path = DRIVER) -> GpuFacts:
    """Read the facts of this machine."""
    available = torch.cuda.is_available()
    properties = [
        torch.cuda.get_device_properties(gpu) for gpu in range(torch.cuda.device_count() if available else 0)
    ]
    return GpuFacts(
        torch=str(torch.__version__),
        cuda=str(torch.version.cuda or ""),
        driver=_driver(driver),
        present=driver.exists() or DEVICE.exists(),
        devices=tuple(
            GpuDevice(name=device.name, memory_gib=device.total_memory / 2**30, bf16=device.major >= 8)
            for device in properties
        ),
        nccl=_nccl() if available else "",
        visible=environment.get("CUDA_VISIBLE_DEVICES"),
        workspace=environment.get("CUBLAS_WORKSPACE_CONFIG"),
    )


def _driver(file: Path) -> str:
    try:
        match = re.search(r"Kernel Module.*?\s(\d+\.[\d.]+)", file.read_text())
    except OSError:
        return ""
    return match[1] if match else ""


def _nccl() -> str:
    if not torch.distributed.is_available() or not torch.distributed.is_nccl_available():
        return ""
    return ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
