"""Gives a vLLM server the weights of a version while answers are running.

    paused ──> "changing" ──> weights ──> prompts forgotten ──> named ──> resumed

Invariant 6 through every crash: the name is removed from the weights before they change and restored afterwards, and
nothing is sampled in between. A process that finds a server half-way, by its name or its pause, restarts or resumes it.
"""

import structlog

from hindcast.actors.engines.vllm.server import VllmServer
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
