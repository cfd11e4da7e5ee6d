"""An engine as a plugin: any other engine, with one JSON line in a file for each of its answers."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from hindcast.actors.engines.base import Constraint, Generation, PolicyEngine
from hindcast.core.domain.sampling import Sampling
from hindcast.core.models.engine import Engine, EngineContext, EngineTraits, engine_options, find_engine
from hindcast.core.settings.schema import Settings

NAMES = ("logged", "hindcast_logged:ENGINE")


class LoggedOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`policy.options` of this engine."""

    file: str = "answers.jsonl"
    """File that answers are appended to."""
    engine: str = "in_process"
    """Engine that samples."""


class LoggedEngine:
    """A `PolicyEngine` that passes every call on."""

    def __init__(self, engine: PolicyEngine, file: Path) -> None:
        self._engine = engine
        self._file = file

    @property
    def version(self) -> int:
        """See `PolicyEngine.version`."""
        return self._engine.version

    @property
    def tokenizer(self) -> Any:
        """See `PolicyEngine.tokenizer`."""
        return self._engine.tokenizer

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, constraint: Constraint | None = None
    ) -> Generation:
        """See `PolicyEngine.generate`."""
        began = time.monotonic()
        answer = await self._engine.generate(prompt_ids, sampling, constraint)
        line = {
            "prompt_tokens": len(prompt_ids),
            "answer_tokens": len(answer.token_ids),
            "seconds": round(time.monotonic() - began, 3),
            "text": self.tokenizer.decode(answer.token_ids),
        }
        await asyncio.to_thread(self._append, json.dumps(line) + "\n")
        return answer

    async def adopt(self, version: int, weights: Path) -> None:
        """See `PolicyEngine.adopt`."""
        await self._engine.adopt(version, weights)

    async def close(self) -> None:
        """See `PolicyEngine.close`."""
        await self._engine.close()

    def _append(self, line: str) -> None:
        with self._file.open("a", encoding="utf-8") as file:
            file.write(line)


@asynccontextmanager
async def opened(context: EngineContext) -> AsyncIterator[LoggedEngine]:
    """Open the other engine and wrap it."""
    options = engine_options(context.settings.policy)
    async with find_engine(options.engine).open(context) as engine:
        yield LoggedEngine(engine, Path(options.file))


def check(settings: Settings) -> list[str]:
    """Refuse an engine that would open itself, or one whose servers Hindcast would not start."""
    wrapped = engine_options(settings.policy).engine
    if wrapped in NAMES:
        return [f"policy.options.engine = {wrapped!r} is this engine itself"]
    if find_engine(wrapped).traits.uses_policy_servers:
        return [
            f"policy.options.engine = {wrapped!r} needs policy servers, which are not started for this one"
        ]
    return []


ENGINE = Engine(
    traits=EngineTraits(computes_here=True),
    open=opened,
    options=LoggedOptions,
    check=check,
)
