"""How a server is given a version: whole weights by reloading them, an adapter by loading it beside those there are."""

from pathlib import Path
from typing import Protocol

import structlog

from hindcast.actors.engines.vllm.server import VllmServer
from hindcast.actors.engines.vllm.weights import label_of, versions_in
from hindcast.actors.policy_servers.weight_sync import synchronise
from hindcast.core.settings.schema import Settings
from hindcast.core.settings.vllm import VllmSettings

logger = structlog.get_logger(__name__)


class WeightDelivery(Protocol):
    """Gives versions to servers."""

    async def give(self, server: VllmServer, version: int, folder: Path) -> None:
        """Make a server have a version, which lies in `folder` (version 0: the policy as it came), if it has it not.

        Raises:
            ServerTroubled, EngineFailed: it does not take it.

        """
        ...


def giving_for(settings: Settings, base: Path, *, run: str) -> WeightDelivery:
    """What a run's servers are given. `base`: the policy as it came."""
    if settings.learner.lora_rank:
        return AdapterDelivery(run, base, settings.vllm)
    return WholeWeightDelivery(run, settings.vllm)


class WholeWeightDelivery:
    """Weights in the place of those before."""

    def __init__(self, run: str, settings: VllmSettings) -> None:
        self._run = run
        self._settings = settings

    async def give(self, server: VllmServer, version: int, folder: Path) -> None:
        """See `WeightDelivery.give`."""
        await synchronise(server, str(folder.absolute()), label_of(self._run, version), self._settings)


class AdapterDelivery:
    """Adapters on the policy as it came, each under a name that stands for one version for ever.

        base reloaded and named log:0, once ──> log:5 loaded ──> log:3 and older unloaded

    A server samples all the while: it shows a name when it has the adapter, and answers under way go on with theirs. The
    newest older one stays, for whoever asks has not yet seen the newest. A crash anywhere leaves a server that has an
    adapter or has it not, and is asked which.
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
