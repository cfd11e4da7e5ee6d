"""The plugin of `policy.engine = "vllm"`: what does not go together in its settings, and how an actor opens the engine."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import SplitResult

from hindcast.actors.policy_servers.command import (
    GPU_ARGUMENTS,
    LORA_RANKS,
    OURS,
    OVERRIDES,
    require_policy_servers,
)
from hindcast.core.fast_import import loading
from hindcast.core.models.engine import Engine, EngineContext, EngineTraits
from hindcast.core.settings.schema import Settings
from hindcast.core.settings.vllm import LOWEST_TEMPERATURE, VllmSettings
from hindcast.core.text.addresses import split_address

if TYPE_CHECKING:
    from hindcast.actors.engines.vllm.engine import VllmEngine


@asynccontextmanager
async def _opened(context: EngineContext) -> "AsyncIterator[VllmEngine]":
    with loading():
        from hindcast.actors.engines.vllm.engine import VllmEngine
        from hindcast.actors.engines.vllm.weights import served_weights

    settings, run = context.settings, await context.log_name()
    engine_context = await asyncio.to_thread(
        lambda: VllmEngine(
            context.folder,
            context.server_addresses,
            weights=served_weights(settings, run),
            settings=settings.vllm,
            answer_timeout_s=settings.actors.generate_timeout_s,
            tell=context.report,
        )
    )
    async with engine_context as engine:
        yield engine


def _conflicts(settings: Settings) -> list[str]:
    vllm, temperature = settings.vllm, settings.actors.temperature
    conflicts = []
    if 0 < temperature < LOWEST_TEMPERATURE:
        conflicts.append(
            f"actors.temperature = {temperature:g}: vLLM samples at {LOWEST_TEMPERATURE:g} instead, and what is recorded would not be what "
            f"was done: set 0 (greedy) or {LOWEST_TEMPERATURE:g} and more"
        )
    conflicts += [
        f"vllm.arguments gives {argument!r}, which Hindcast gives itself: settings of their own say it, or what is recorded "
        "depends on it"
        for argument in vllm.arguments
        if argument.partition("=")[0].replace("_", "-") in OURS
    ]
    conflicts += _gpu_conflicts(vllm)
    conflicts += _head_conflicts(settings)
    if vllm.batch_invariant and not (vllm.servers or vllm.python):
        conflicts.append(
            "vllm.batch_invariant = true needs GPUs, and vLLM's build for CPUs would be started: set vllm.python to an environment "
            "with vLLM for GPUs, or leave it off"
        )
    if settings.learner.lora_rank:
        conflicts += _adapter_conflicts(settings.learner.lora_rank, vllm)
    for address in vllm.servers:
        streams = vllm.transfer == "stream" and not settings.learner.lora_rank
        conflicts += _address_conflicts(address, reached=streams or bool(vllm.weights_folder))
    return conflicts


def _gpu_conflicts(vllm: VllmSettings) -> list[str]:
    conflicts = []
    if len(set(vllm.gpus)) < len(vllm.gpus):
        conflicts.append(f"vllm.gpus = {list(vllm.gpus)} names a GPU twice: each has one server")
    if vllm.gpus and len(vllm.gpus) % vllm.gpus_per_server:
        conflicts.append(
            f"vllm.gpus = {list(vllm.gpus)} are {len(vllm.gpus)} GPUs, which do not divide into servers of vllm.gpus_per_server = "
            f"{vllm.gpus_per_server}: name a multiple of that number"
        )
    if not vllm.gpus and vllm.gpus_per_server > 1:
        conflicts.append(
            f"vllm.gpus_per_server = {vllm.gpus_per_server}, and vllm.gpus is empty: name the GPUs of the servers"
        )
    if vllm.gpus or vllm.memory_share:
        conflicts += [
            f"vllm.arguments gives {argument!r}, which vllm.memory_share and vllm.gpus_per_server say: leave one out"
            for argument in vllm.arguments
            if argument.partition("=")[0].replace("_", "-") in GPU_ARGUMENTS
        ]
    if vllm.servers and vllm.gpus:
        conflicts.append(
            "vllm.servers names servers that run already, and vllm.gpus places servers that Hindcast starts: leave one out"
        )
    return conflicts


def _head_conflicts(settings: Settings) -> list[str]:
    """Learner and servers compute the head in float32 both, or neither."""
    overrides = [
        argument
        for argument in settings.vllm.arguments
        if argument.partition("=")[0].replace("_", "-") == OVERRIDES
    ]
    if overrides and settings.learner.float32_head:
        return [
            f"vllm.arguments gives {overrides[0]!r}, and learner.float32_head = true gives this argument, too, of which vLLM takes the last: "
            "leave one out"
        ]
    if any("head_dtype" in argument for argument in settings.vllm.arguments):
        return [
            "vllm.arguments sets head_dtype, by which the servers and not the learner would compute logits in another format: set "
            "learner.float32_head instead, which does it in both"
        ]
    return []


def _adapter_conflicts(rank: int, vllm: VllmSettings) -> list[str]:
    conflicts = []
    if rank > LORA_RANKS[-1]:
        conflicts.append(
            f"learner.lora_rank = {rank}: vLLM takes adapters up to rank {LORA_RANKS[-1]}. Set it lower, or policy.engine to "
            "in_process"
        )
    if vllm.pause == "wait":
        conflicts.append(
            f"vllm.pause = 'wait' with adapters (learner.lora_rank = {rank}): nothing is paused for a new one, and answers "
            "under way end with the one they began with. Leave it at 'keep'"
        )
    return conflicts


def _address_conflicts(address: str, *, reached: bool) -> list[str]:
    """`reached`: whether new weights reach servers on other machines."""
    split = split_address(address)
    if split.scheme not in ("http", "https") or not split.hostname:
        return [f"vllm.servers names {address!r}: write an address as http://10.0.0.5:8000"]
    if split.username is not None or split.password is not None or split.query or split.path.strip("/"):
        return [
            f"vllm.servers names {address!r}: an address is scheme, host and port alone; settings are recorded, and hold no "
            "password"
        ]
    if not reached and not _is_here(split):
        return [
            f"vllm.servers names {address!r} on another machine, and vllm.weights_folder is empty: that server could not read new "
            "weights. Name a folder that all machines share, or set vllm.transfer to stream"
        ]
    return []


def _is_here(split: SplitResult) -> bool:
    host = split.hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


ENGINE = Engine(
    traits=EngineTraits(uses_policy_servers=True),
    open=_opened,
    check=_conflicts,
    require=require_policy_servers,
)
