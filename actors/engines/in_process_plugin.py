"""The plugin of `policy.engine = "in_process"`, apart from its engine, whose module loads torch."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from hindcast.core.fast_import import loading
from hindcast.core.models.engine import Engine, EngineContext, EngineTraits

if TYPE_CHECKING:
    from hindcast.actors.engines.in_process import InProcessEngine


@asynccontextmanager
async def _opened(context: EngineContext) -> "AsyncIterator[InProcessEngine]":
    with loading():
        from hindcast.actors.engines.in_process import InProcessEngine

    engine_context = await asyncio.to_thread(InProcessEngine, context.folder, context.settings.policy)
    async with engine_context as engine:
        yield engine


ENGINE = Engine(traits=EngineTraits(computes_here=True, reads_pictures=True), open=_opened)
