"""Gives a server a version: whole weights by reloading them, an adapter by loading it next to the others.

    paused ──> "changing" ──> weights ──> prompts forgotten ──> named ──> resumed

Answers may be running meanwhile. Invariant 6 holds through every crash: the name is removed from the weights before they
change and restored afterwards, and nothing is sampled in between. A process that finds a server half-way, by its name or
its pause, restarts or resumes it.
"""

from pathlib import Path
from typing import Protocol

import structlog

from hindcast.actors.engines.vllm.server import VllmServer
from hindcast.actors.engines.vllm.weights import label_of, versions_in
from hindcast.core.settings.schema import Settings
from hindcast.core.settings.vllm import VllmSettings

CHANGING = "changing"
"""Label of weights while they change: it names no run and no version."""

logger = structlog.get_logger(__name__)


async def synchronise(server: VllmServer, folder: str, label: str, settings: VllmSettings) -> bool:
    """Make `server` sample from the model in `folder`, on its machine, under this label; returns whether that changed anything.

    Raises:
        ServerTroubled, EngineFailed: a step failed; the server is paused, or samples from its previous weights.
    """
    timeout_s = settings.sync_timeout_s
    if await server.label(timeout_s=timeout_s) == label:
        if await server.is_paused(timeout_s=timeout_s):
            await server.resume(timeout_s=timeout_s)
        return False
    await server.pause(settings.pause, timeout_s=timeout_s)
    await server.name_weights(CHANGING, timeout_s=timeout_s)
    await server.reload(folder, timeout_s=timeout_s)
    await server.forget_prompts(timeout_s=timeout_s)
    await server.name_weights(label, timeout_s=timeout_s)
    await server.resume(timeout_s=timeout_s)
    logger.info("policy server has new weights", server=server.address, label=label)
    return True


class WeightDelivery(Protocol):
    """Gives versions to servers."""

    async def give(self, server: VllmServer, version: int, folder: Path) -> None:
        """Give a server a version, whose folder is `folder` (version 0: the base policy), unless it has it.

        Raises:
            ServerTroubled, EngineFailed: it rejects the version.
        """
        ...


def giving_for(settings: Settings, base: Path, *, run: str) -> WeightDelivery:
    """The kind of delivery of a run. `base`: folder of the base policy."""
    if settings.learner.lora_rank:
        return AdapterDelivery(run, base, settings.vllm)
    return WholeWeightDelivery(run, settings.vllm)


class WholeWeightDelivery:
    """Replaces the server's weights."""

    def __init__(self, run: str, settings: VllmSettings) -> None:
        self._run = run
        self._settings = settings

    async def give(self, server: VllmServer, version: int, folder: Path) -> None:
        """See `WeightDelivery.give`."""
        await synchronise(server, str(folder.absolute()), label_of(self._run, version), self._settings)


class AdapterDelivery:
    """Loads adapters on the base policy, each under a name that denotes one version forever.

        base reloaded and named log:0, once ──> log:5 loaded ──> log:3 and older unloaded

    A server samples all the while. It shows a name when it has the adapter, and running answers keep theirs. The newest older
    one stays, because callers may not have seen the newest. A crash at any point leaves a server with or without the adapter,
    and the server is asked which.
    """

    def __init__(self, run: str, base: Path, settings: VllmSettings) -> None:
        self._run = run
        self._base = base
        self._settings = settings

    async def give(self, server: VllmServer, version: int, folder: Path) -> None:
        """See `WeightDelivery.give`."""
        timeout_s = self._settings.sync_timeout_s
        await synchronise(server, str(self._base.absolute()), label_of(self._run, 0), self._settings)
        had = versions_in(await server.models(timeout_s=timeout_s), self._run)
        if version and version not in had:
            name = label_of(self._run, version)
            await server.load_adapter(name, str(folder.absolute()), timeout_s=timeout_s)
            logger.info("policy server has a new adapter", server=server.address, name=name)
        for old in [one for one in had if one < version][:-1]:
            await server.unload_adapter(label_of(self._run, old), timeout_s=timeout_s)
