"""A small OpenAI-compatible server on a real socket: answers chat completions by a rule, well or badly."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from hindcast.core.domain.sampling import Sampling

Body = dict[str, Any]


class Response(NamedTuple):
    """What goes back."""

    content: bytes
    status: int = 200
    headers: Mapping[str, str] = {}


class Hangs(NamedTuple):
    """No answer, for as long as the server lives."""


class Drops(NamedTuple):
    """The connection is closed without a word."""


Reaction = Response | Hangs | Drops
Rule = Callable[[Body], Reaction]


def says(
    text: str | None,
    *,
    refusal: str | None = None,
    finish: str = "stop",
    prompt_tokens: int = 100,
    answer_tokens: int = 10,
) -> Response:
    """A chat completion."""
    message = {"role": "assistant", "content": text, "refusal": refusal}
    content = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "test-model-1",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": answer_tokens},
    }
    return Response(json.dumps(content).encode())


def fails(status: int, *, code: str = "", message: str = "no", **headers: str) -> Response:
    """An error as such servers word it."""
    content = json.dumps({"error": {"message": message, "code": code or None, "type": "error"}}).encode()
    return Response(content, status, {name.replace("_", "-"): value for name, value in headers.items()})


class ChatServer:
    """What came in, and what goes out."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.asked: list[Body] = []
        """Bodies of the requests, in the order in which they came."""
        self.keys: list[str] = []
        """Their authorisation headers."""
        self.under_way = self.most_under_way = 0
        self.base_url = ""
        self._closing = asyncio.Event()

    async def serve(self, ready: threading.Event, stop: asyncio.Event) -> None:
        server = await asyncio.start_server(self._talk, "127.0.0.1", 0)
        self.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        ready.set()
        await stop.wait()
        self._closing.set()
        server.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            body = await self._read(reader)
            self.under_way += 1
            self.most_under_way = max(self.most_under_way, self.under_way)
            try:
                reaction = await asyncio.to_thread(self.rule, body)
            finally:
                self.under_way -= 1  # before the answer goes out: who gets it may ask at once
            if isinstance(reaction, Hangs):
                await self._closing.wait()
            elif isinstance(reaction, Response):
                writer.write(_http(reaction))
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # who asked has gone
        finally:
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> Body:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
        assert head.startswith("POST /v1/chat/completions ")
        body: Body = json.loads(await reader.readexactly(int(headers["content-length"])))
        self.asked.append(body)
        self.keys.append(headers["authorization"])
        return body


def _http(response: Response) -> bytes:
    headers = {
        "Content-Type": "application/json",
        "Content-Length": str(len(response.content)),
        "Connection": "close",
    } | dict(response.headers)
    lines = [f"HTTP/1.1 {response.status} Status", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode() + response.content


@contextmanager
def chatting(rule: Rule) -> Iterator[ChatServer]:
    """A server on a free port of loopback, in a thread of its own."""
    with serving(ChatServer(rule)) as server:
        yield server


Served = TypeVar("Served", bound=ChatServer)


@contextmanager
def serving(server: Served) -> Iterator[Served]:
    """Serve in a thread of its own."""
    ready, stopping = threading.Event(), []

    async def run() -> None:
        stop = asyncio.Event()
        stopping.append((asyncio.get_running_loop(), stop))
        await server.serve(ready, stop)

    thread = threading.Thread(target=asyncio.run, args=(run(),), daemon=True)
    thread.start()
    assert ready.wait(60)
    try:
        yield server
    finally:
        loop, stop = stopping[0]
        loop.call_soon_threadsafe(stop.set)
        thread.join()


def in_turn(*reactions: Reaction) -> Rule:
    """One reaction after the other; the last one stays."""
    left = list(reactions)
    lock = threading.Lock()

    def rule(_: Body) -> Reaction:
        with lock:
            return left.pop(0) if len(left) > 1 else left[0]

    return rule


def policy_rule(engine: Any) -> Rule:
    """A real model behind the server: an engine of ours answers the turns after the system's, by its own chat template."""

    def rule(body: Body) -> Reaction:
        turns = [one for one in body["messages"] if one["role"] != "system"]
        text = engine.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        ids = engine.tokenizer(text, add_special_tokens=False)["input_ids"]
        sampling = Sampling(temperature=body["temperature"], max_tokens=64, seed=body["seed"])
        answer = asyncio.run(engine.generate(ids, sampling))
        said = engine.tokenizer.decode(answer.token_ids, skip_special_tokens=True)
        return says(said, prompt_tokens=len(ids), answer_tokens=len(answer.token_ids))

    return rule
