"""A policy as a server for OpenAI's and Anthropic's clients, apart from any run: `hindcast policy serve`.

    POST /v1/chat/completions     with `stream`, as events once the answer is complete
    POST /v1/responses            with `stream`, as events once the answer is complete
    POST /v1/messages             in Anthropic's format; with `stream`, as events once the answer is complete
    GET  /v1/models, /v1/models/NAME

The same formats as agents use while they are trained, so that an agent that was trained needs only another address.
"""

import asyncio
import secrets
from collections.abc import Callable
from itertools import count
from typing import Any

from starlette.applications import Starlette

from hindcast.actors.agents.model_call import ModelCall, Reply
from hindcast.actors.agents.proxy import ChatRoutes
from hindcast.actors.engines.base import PolicyEngine
from hindcast.actors.web_server import serve_app
from hindcast.core.domain.sampling import Sampling
from hindcast.core.prompts.chat_messages import ChatUnreadable, encode_chat
from hindcast.core.settings.schema import ActorSettings

SEEDS = 2**31


class ServedPolicy:
    """Answers calls from an engine; implements `Asked`."""

    def __init__(self, engine: PolicyEngine, settings: ActorSettings) -> None:
        """`settings`: limits of prompts and answers, and the temperature of calls that name none."""
        self._engine = engine
        self._settings = settings
        self._numbers = count()

    async def ask(
        self,
        messages: list[dict[str, Any]],
        *,
        tools: list[dict[str, Any]],
        max_tokens: int | None,
        temperature: float | None,
    ) -> tuple[ModelCall, Reply]:
        """See `Asked`."""
        tokenizer = self._engine.tokenizer
        prompt_ids = await asyncio.to_thread(encode_chat, tokenizer, messages, tools=tools)
        most, allowed = self._settings.max_prompt_tokens, self._settings.max_answer_tokens
        if len(prompt_ids) > most:
            raise ChatUnreadable(
                f"the messages have {len(prompt_ids)} tokens, {most} are allowed (actors.max_prompt_tokens): shorten them"
            )
        call = ModelCall(
            messages,
            prompt_ids=prompt_ids,
            max_tokens=min(allowed, max_tokens or allowed),
            uses_tools=bool(tools),
        )
        chosen = self._settings.temperature if temperature is None else float(temperature)
        sampling = Sampling(temperature=chosen, max_tokens=call.max_tokens, seed=secrets.randbelow(SEEDS))
        found = await self._engine.generate(prompt_ids, sampling)
        reply = Reply(
            text=tokenizer.decode(found.token_ids, skip_special_tokens=True),
            finish=found.finish,
            prompt_tokens=len(prompt_ids),
            answer_tokens=len(found.token_ids),
            version=max(found.versions, default=0),
            number=next(self._numbers),
        )
        return call, reply


async def serve_policy(
    engine: PolicyEngine, settings: ActorSettings, *, host: str, port: int, ready: Callable[[str], None]
) -> None:
    """Serve until cancellation. `ready` gets the base URL for clients. Raises EnvironmentFailed when the port is taken."""
    policy = ServedPolicy(engine, settings)
    app = Starlette(routes=ChatRoutes(lambda _request: policy).under("/v1"))
    await serve_app(
        app, who="the policy's server", host=host, port=port, ready=lambda base: ready(f"{base}/v1")
    )
