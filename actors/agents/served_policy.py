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
    """Answers calls from an engine; implements `CallTarget`."""

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
        """See `CallTarget`."""
        tokenizer = self._engine.tokenizer
        prompt_ids = await asyncio.to_thread(encode_chat, tokenizer, messages, tools=tools)
        max_prompt_tokens, allowed = self._settings.max_prompt_tokens, self._settings.max_answer_tokens
        if len(prompt_ids) > max_prompt_tokens:
            raise ChatUnreadable(
                f"the messages have {len(prompt_ids)} tokens, {max_prompt_tokens} are allowed (actors.max_prompt_tokens): shorten them"
            )
        call = ModelCall(
            messages,
            prompt_ids=prompt_ids,
            max_tokens=min(allowed, max_tokens or allowed),
            uses_tools=bool(tools),
        )
        sampling_temperature = self._settings.temperature if temperature is None else float(temperature)
        sampling = Sampling(
            temperature=sampling_temperature, max_tokens=call.max_tokens, seed=secrets.randbelow(SEEDS)
        )
        generation = await self._engine.generate(prompt_ids, sampling)
        reply = Reply(
            text=tokenizer.decode(generation.token_ids, skip_special_tokens=True),
            finish=generation.finish,
            prompt_tokens=len(prompt_ids),
            answer_tokens=len(generation.token_ids),
            version=max(generation.versions, default=0),
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
        app, server_name="the policy's server", host=host, port=port, ready=lambda base: ready(f"{base}/v1")
    )
