"""Giving a vLLM server the weights of a version while answers are under way.

    paused ──> "changing" ──> weights ──> prompts forgotten ──> named ──> resumed

Invariant 6 through every crash: the name is taken from the weights before they change and given back after, and nothing
is sampled in between. Whoever finds a server half-way, by its name or by its pause, begins again or resumes it.
"""

import structlog

from hindcast.actors.engines.vllm.server import VllmServer
from hindcast.core.settings.vllm import VllmSettings

CHANGING = "changing"
"""What weights are called while they change: no run's, no version."""

logger = structlog.get_logger(__name__)


async def synchronise(server: VllmServer, folder: str, label: str, settings: VllmSettings) -> bool:
    """Make `server` sample from the model in `folder`, on its machine, under this label; whether that changed anything.

    Raises:
        ServerTroubled, EngineFailed: a step failed; the server samples nothing, or what it did before.

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
