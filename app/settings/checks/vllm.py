"""Settings of policy servers that are each allowed but do not go together, in words."""

from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from hindcast.actors.policy_servers.command import LORA_RANKS, OURS
from hindcast.core.settings.schema import Settings
from hindcast.core.settings.vllm import COLDEST, VLLM, VllmSettings


def vllm_conflicts(settings: Settings) -> list[str]:
    """What is wrong with how the policy is served; nothing where it is not."""
    if settings.policy.engine != VLLM:
        return []
    vllm, temperature = settings.vllm, settings.actors.temperature
    found = []
    if 0 < temperature < COLDEST:
        found.append(
            f"actors.temperature = {temperature:g}: vLLM samples at {COLDEST:g} instead, and what is recorded would not be what "
            f"was done: set 0 (greedy) or {COLDEST:g} and more"
        )
    found += [
        f"vllm.arguments gives {argument!r}, which Hindcast gives itself: settings of their own say it, or what is recorded "
        "depends on it"
        for argument in vllm.arguments
        if argument.partition("=")[0].replace("_", "-") in OURS
    ]
    if settings.learner.lora_rank:
        found += _adapter_conflicts(settings.learner.lora_rank, vllm)
    for address in vllm.servers:
        found += _address_conflicts(address, shared=bool(vllm.weights_folder))
    return found


def _adapter_conflicts(rank: int, vllm: VllmSettings) -> list[str]:
    found = []
    if rank > LORA_RANKS[-1]:
        found.append(
            f"learner.lora_rank = {rank}: vLLM takes adapters up to rank {LORA_RANKS[-1]}. Set it lower, or policy.engine to "
            "in_process"
        )
    if vllm.pause == "wait":
        found.append(
            f"vllm.pause = 'wait' with adapters (learner.lora_rank = {rank}): nothing is paused for a new one, and answers "
            "under way end with the one they began with. Leave it at 'keep'"
        )
    return found


def _address_conflicts(address: str, *, shared: bool) -> list[str]:
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return [f"vllm.servers names {address!r}: write an address as http://10.0.0.5:8000"]
    if parts.username is not None or parts.password is not None or parts.query or parts.path.strip("/"):
        return [
            f"vllm.servers names {address!r}: an address is scheme, host and port alone; settings are recorded, and hold no "
            "password"
        ]
    if not shared and not _is_here(parts):
        return [
            f"vllm.servers names {address!r} on another machine, and vllm.weights_folder is empty: that server could not read new "
            "weights. Name a folder that all machines share"
        ]
    return []


def _is_here(parts: SplitResult) -> bool:
    host = parts.hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
