"""Checks that policy servers and learner do not want the same memory of a GPU."""

from pathlib import Path

from hindcast.core.errors import PluginError
from hindcast.core.models.engine import find_engine
from hindcast.core.settings.schema import Settings

GPU_DRIVER = Path("/proc/driver/nvidia/version")
"""There where the system has NVIDIA's driver, so that a learner with `auto` would use a GPU."""
SHARE_ARGUMENT = "--gpu-memory-utilization"


def gpu_conflicts(settings: Settings) -> list[str]:
    """Find GPUs of the learner of which a server of this machine would take its whole default share.

    For new runs only: older ones were started before servers could be placed.
    """
    vllm, learner = settings.vllm, settings.learner
    uses_gpus = learner.device == "cuda" or (learner.device == "auto" and GPU_DRIVER.exists())
    if not uses_gpus or vllm.servers:
        return []
    try:
        engine = find_engine(settings.policy.engine)
    except PluginError:  # `engine_conflicts` reports it
        return []
    shared = vllm.memory_share > 0 or any(
        argument.partition("=")[0].replace("_", "-") == SHARE_ARGUMENT for argument in vllm.arguments
    )
    common = sorted(set(vllm.gpus or (0,)) & set(range(learner.processes)))
    if not engine.traits.uses_policy_servers or shared or not common:
        return []
    return [
        f"vllm.gpus = {list(vllm.gpus)} and learner.processes = {learner.processes} both use GPU {common[0]}, and a vLLM server takes "
        "about 90 % of its memory. Name other GPUs in vllm.gpus, or limit the servers by vllm.memory_share (0.9 if the learner is on "
        "another machine). hindcast size --gpus N --emit settings.toml computes both"
    ]
