"""The policy as a server for OpenAI's and Anthropic's clients: each episode has an address of its own.

    POST /episodes/KEY/v1/chat/completions     an answer of the policy; with `stream`, as events once it is complete
    POST /episodes/KEY/v1/responses            the same in the format of responses; with `stream`, as events
    POST /episodes/KEY/v1/messages             the same in Anthropic's format; with `stream`, as events
    GET  /episodes/KEY/v1/models               and /NAME
    POST /episodes/KEY/reward                  {"reward": 1.0, "answer": "…"}, both optional
    POST /episodes/KEY/end                     the same, and the episode is over

The key cannot be guessed, so an agent reaches its own episode alone. It listens on this machine only.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Protocol, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from hindcast.actors.agents.anthropic_format import error_body, message, message_events, read_messages
from hindcast.actors.agents.model_call import (
    MODEL,
    ModelCall,
    Reply,
    chat_chunks,
    chat_completion,
    read_chat,
    read_response,
    response,
    response_events,
)
from hindcast.actors.web_server import serve_app
from hindcast.core.prompts.chat_messages import ChatUnreadable
from hindcast.core.structs import decode_json

BODY_BYTES = 16 * 2**20
"""Largest request."""
START_S = 10.0
"""How long the server may take to listen."""
Read = Callable[[Mapping[str, Any]], tuple[list[dict[str, Any]], list[dict[str, Any]]]]


Answered = TypeVar("Answered")


class EpisodeOver(Exception):
    """The episode does not answer any more."""


class RewardRefused(Exception):
    """A reward outside the range of the run's settings; its text is for the agent."""


class CallTarget(Protocol):
    """What answers the calls of an address."""

    async def ask(
        self,
        messages: list[dict[str, Any]],
        *,
        tools: list[dict[str, Any]],
        max_tokens: int | None,
        temperature: float | None,
    ) -> tuple[ModelCall, Reply]:
        """Answer a call; cancelled if its client leaves. Raises ChatUnreadable, or EpisodeOver."""
        ...


class Rewarded(CallTarget, Protocol):
    """An episode of an agent."""

    def reward(self, value: float | None, answer: str | None) -> None:
        """Take in the agent's reward for the whole episode, and its answer. Raises RewardRefused."""
        ...

    def end(self) -> None:
        """End the episode."""
        ...


class AgentProxy:
    """Serves any number of episodes; started by the first."""

    def __init__(self) -> None:
        self._episodes: dict[str, Rewarded] = {}
        self._calls = ChatRoutes(lambda request: self._episodes.get(request.path_params["key"]))
        self._starting = asyncio.Lock()
        self._serving: asyncio.Task[None] | None = None
        self._base = ""

    async def open(self, episode: Rewarded) -> tuple[str, str]:
        """Serve an episode; returns its key and the address of its paths, without a slash at the end."""
        async with self._starting:
            if self._serving is None or self._serving.done():
                ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
                self._serving = asyncio.create_task(
                    serve_app(
                        self._app(),
                        server_name="the agents' server",
                        host="127.0.0.1",
                        port=0,
                        ready=ready.set_result,
                    ),
                    name="agents' server",
                )
                async with asyncio.timeout(START_S):
                    self._base = await ready
        key = secrets.token_urlsafe(16)
        self._episodes[key] = episode
        return key, f"{self._base}/episodes/{key}"

    def close(self, key: str) -> None:
        """Stop serving an episode."""
        self._episodes.pop(key, None)

    def _app(self) -> Starlette:
        under = "/episodes/{key}"
        reward = Route(f"{under}/reward", self._reward, methods=["POST"])
        end = Route(f"{under}/end", self._end, methods=["POST"])
        return Starlette(routes=[*self._calls.under(f"{under}/v1"), reward, end])

    async def _end(self, request: Request) -> Response:
        episode = self._episodes.get(request.path_params["key"])
        answer = await self._reward(request)
        if episode is not None and answer.status_code == HTTPStatus.OK:
            episode.end()
        return answer

    async def _reward(self, request: Request) -> Response:
        episode = self._episodes.get(request.path_params["key"])
        if episode is None:
            return _error(_no_such_episode())
        try:
            body = await _body_of(request)
        except _Refused as refused:
            return _error(refused)
        value, answer = body.get("reward"), body.get("answer")
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            return _error(
                _Refused(
                    400, f"the reward is {value!r}: expected a number, 1 for a success and 0 for a failure"
                )
            )
        if answer is not None and not isinstance(answer, str):
            return _error(_Refused(400, f"the answer is {answer!r}: expected a text"))
        try:
            episode.reward(None if value is None else float(value), answer)
        except RewardRefused as refused:
            return _error(_Refused(422, str(refused)))
        return JSONResponse({"recorded": True})


class ChatRoutes:
    """OpenAI's and Anthropic's formats over whatever answers the calls of a request's address."""

    def __init__(self, find: Callable[[Request], CallTarget | None]) -> None:
        """`find` None: nothing answers at this address any more."""
        self._find = find

    def under(self, path: str) -> list[Route]:
        """The routes below a path."""
        return [
            Route(f"{path}/chat/completions", self._chat, methods=["POST"]),
            Route(f"{path}/responses", self._responses, methods=["POST"]),
            Route(f"{path}/messages", self._messages, methods=["POST"]),
            Route(f"{path}/models", self._models),
            Route(f"{path}/models/{{name:path}}", self._model),
        ]

    async def _chat(self, request: Request) -> Response:
        try:
            body, call, reply = await self._ask(request, read_chat, limit="max_tokens")
        except _Refused as refused:
            return _error(refused)
        if not body.get("stream"):
            return JSONResponse(chat_completion(reply, uses_tools=call.uses_tools))
        options = body.get("stream_options") or {}
        chunks = chat_chunks(reply, uses_tools=call.uses_tools, with_usage=bool(options.get("include_usage")))

        async def events() -> AsyncIterator[bytes]:
            for chunk in chunks:
                yield b"data: " + msgspec.json.encode(chunk) + b"\n\n"
            yield b"data: [DONE]\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")

    async def _responses(self, request: Request) -> Response:
        try:
            body, call, reply = await self._ask(request, read_response, limit="max_output_tokens")
        except _Refused as refused:
            return _error(refused)
        if body.get("stream"):
            return _named_events(response_events(reply, uses_tools=call.uses_tools))
        return JSONResponse(response(reply, uses_tools=call.uses_tools))

    async def _messages(self, request: Request) -> Response:
        try:
            body, call, reply = await self._ask(request, read_messages, limit="max_tokens")
        except _Refused as refused:
            return JSONResponse(error_body(refused.status, str(refused)), status_code=refused.status)
        if not body.get("stream"):
            return JSONResponse(message(reply, uses_tools=call.uses_tools))
        return _named_events(message_events(reply, uses_tools=call.uses_tools))

    async def _models(self, request: Request) -> Response:
        if self._find(request) is None:
            return _error(_no_such_episode())
        return JSONResponse({"object": "list", "data": [_model(MODEL)]})

    async def _model(self, request: Request) -> Response:
        """Describe the model of any name, because requests may name any."""
        if self._find(request) is None:
            return _error(_no_such_episode())
        return JSONResponse(_model(request.path_params["name"]))

    async def _ask(
        self, request: Request, read: Read, *, limit: str
    ) -> tuple[dict[str, Any], ModelCall, Reply]:
        answering = self._find(request)
        if answering is None:
            raise _no_such_episode()
        body = await _body_of(request)
        max_tokens = body.get(limit, body.get("max_completion_tokens"))
        if max_tokens is not None and (
            isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < 1
        ):
            raise _Refused(400, f"{limit} is {max_tokens!r}: expected a number above 0")
        temperature = body.get("temperature")
        if temperature is not None and (
            isinstance(temperature, bool) or not isinstance(temperature, int | float) or temperature < 0
        ):
            raise _Refused(400, f"temperature is {temperature!r}: expected a number, 0 or above")
        if body.get("n") not in (None, 1):
            raise _Refused(400, "n must be 1: every answer is a step of the episode")
        try:
            messages, tools = read(body)
            asking = answering.ask(messages, tools=tools, max_tokens=max_tokens, temperature=temperature)
            call, reply = await _while_connected(request, asking)
        except ChatUnreadable as error:
            raise _Refused(400, str(error)) from error
        except EpisodeOver as error:
            raise _Refused(410, str(error)) from error
        return body, call, reply


async def _while_connected(request: Request, work: Coroutine[Any, Any, Answered]) -> Answered:
    """Wait for the work; cancel it if the client leaves first, and raise _Refused with the status that nginx has for this."""
    working: asyncio.Future[Any] = asyncio.create_task(work, name="an agent's call")
    # the next message of a request that was read is that its connection closed
    leaving: asyncio.Future[Any] = asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            answered: Answered = working.result()
            return answered
        raise _Refused(499, "the client left before it was answered")
    finally:
        leaving.cancel()
        working.cancel()
        await asyncio.gather(leaving, working, return_exceptions=True)


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "hindcast"}


def _named_events(events: Sequence[Mapping[str, Any]]) -> Response:
    """A stream of server-sent events, each named by its `type`."""

    async def lines() -> AsyncIterator[bytes]:
        for event in events:
            yield f"event: {event['type']}\ndata: ".encode() + msgspec.json.encode(event) + b"\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream")


async def _body_of(request: Request) -> dict[str, Any]:
    content = await request.body()
    if len(content) > BODY_BYTES:
        raise _Refused(413, f"a request may have {BODY_BYTES} bytes, this one has {len(content)}")
    try:
        return decode_json(content, dict[str, Any])
    except msgspec.DecodeError as error:
        raise _Refused(400, f"the request is no JSON object: {error}") from error


class _Refused(Exception):
    """A refusal: its status, and its words as the exception's text."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def _error(refused: _Refused) -> Response:
    kind = {"type": "invalid_request_error", "param": None, "code": None}
    return JSONResponse({"error": {"message": str(refused), **kind}}, status_code=refused.status)


def _no_such_episode() -> _Refused:
    return _Refused(404, "there is no such episode here, or it has ended")
