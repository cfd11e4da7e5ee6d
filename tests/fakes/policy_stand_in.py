"""A stand-in for a vLLM server on a real socket: the interface that engine and policy server use, and its ways to fail.

It samples nothing: every answer is the same two tokens, or the first of those that a request allows, labelled with what its
weights are called. Where a test needs what a model says, the real server is asked (`tests/vllm`).
"""

import asyncio
import hashlib
import json
import math
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

END = 3
"""The shipped tokenizer's end."""
SERVED = "policy"
"""What it calls the weights below all adapters."""


class PolicyStandIn:
    """What it has, and what it was asked."""

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"
        self.label = "default"
        self.folder = ""
        """Of the weights that were loaded last."""
        self.adapters: dict[str, str] = {}
        """Name -> the folder it was loaded from."""
        self.named: list[str | None] = []
        """The models that were asked for, in the order in which the questions came."""
        self.received = b""
        """The weights that were streamed last."""
        self.extended = True
        """Whether it was started with our methods in its workers."""
        self.repacked = 0
        """How often its head was packed again."""
        self.device = "cpu"
        self.cannot_load = False
        self.cannot_pause = False
        self.hangs = False
        """Whether whoever looks at its label waits for ever."""
        self.says: dict[str, Any] = {}
        """By path: what it answers, whatever it should."""
        self.looks = 0
        """How often its label was asked for."""
        self.asked: list[list[int]] = []
        """Prompts, in the order in which they came."""
        self.logprobs: dict[int, float] = {}
        """Log-probabilities of tokens that a request may allow, among all tokens."""
        self.processed = True
        """Whether it reports log-probabilities among the allowed tokens: --logprobs-mode processed_logprobs."""
        self.changed = asyncio.Condition()
        """Whenever something of these did."""
        self._going = asyncio.Event()
        self._going.set()

    async def seen(self, condition: Any) -> None:
        """Return once the condition holds."""
        async with asyncio.timeout(60), self.changed:
            await self.changed.wait_for(condition)

    async def answer(self, path: str, body: Any) -> tuple[int, Any]:
        """Status and content."""
        if path == "/collective_rpc" and body["method"] != "reload_weights":
            return await self._worker(body["method"], body.get("kwargs", {}))
        async with self.changed:
            found = self._change(path, body)
            self.changed.notify_all()
        if path == "/weight_info" and self.hangs:
            await asyncio.Event().wait()
        if path == "/inference/v1/generate" and found[0] == 200:
            await self._going.wait()
            allowed = body["sampling_params"].get("allowed_token_ids", [])
            return 200, self._drawn(body.get("model", SERVED), allowed if self.logprobs else [])
        return (200, self.says[path]) if path in self.says else found

    def _change(self, path: str, body: Any) -> tuple[int, Any]:
        match path:
            case "/weight_info":
                self.looks += 1
                return 200, {"weight_version": self.label}
            case "/health":
                pass
            case "/is_paused":
                return 200, {"is_paused": not self._going.is_set()}
            case "/pause" if self.cannot_pause:
                return 500, {"error": "not now"}
            case "/pause":
                self._going.clear()
            case "/resume":
                self._going.set()
            case "/collective_rpc" if self.cannot_load:
                return 500, {"error": "no room for these weights"}
            case "/collective_rpc":
                self.folder = body["kwargs"]["weights_path"]
            case "/server_info":
                return 200, {"vllm_config": {"device_config": {"device": self.device}}}
            case "/update_weight_version":
                self.label = body["new_version"]
            case "/v1/models":
                return 200, {"data": [{"id": name} for name in (SERVED, *self.adapters)]}
            case "/v1/load_lora_adapter" if self.cannot_load:
                return 500, {"error": {"message": "LoRA is not enabled", "param": None}}
            case "/v1/load_lora_adapter":
                self.adapters[body["lora_name"]] = body["lora_path"]
            case "/v1/unload_lora_adapter":
                del self.adapters[body["lora_name"]]
            case "/inference/v1/generate":
                self.named.append(model := body.get("model"))
                if model is not None and model not in self.adapters:
                    return 404, {"error": {"message": f"no model `{model}`", "param": "model"}}
                self.asked.append(body["token_ids"])
            case "/reset_prefix_cache":
                return 200, {"success": True}
            case _:
                return 404, {}
        return 200, {}

    async def _worker(self, method: str, kwargs: dict[str, str]) -> tuple[int, Any]:
        """One of our own methods, as `actors/engines/vllm/worker` has it."""
        if not self.extended:
            return 500, {"error": f"'CPUWorker' object has no attribute '{method}'"}
        if method == "repack_head":
            self.repacked += 1
            return 200, {}
        reader, writer = await asyncio.open_connection(kwargs["host"], int(kwargs["port"]))
        writer.write(kwargs["token"].encode())
        try:
            content = await reader.readexactly(int(kwargs["size"]))
        except asyncio.IncompleteReadError as error:
            return 500, {"error": f"the weights ended after {len(error.partial)} bytes"}
        finally:
            writer.close()
        if hashlib.sha256(content).hexdigest() != kwargs["sha256"]:
            return 500, {"error": "weights arrived with another SHA-256"}
        self.received = content
        return 200, {}

    def _drawn(self, model: str, allowed: list[int]) -> Any:
        tokens, logprob = [7, END], -0.5
        if allowed:
            tokens, logprob = allowed[:1], self.logprobs[allowed[0]]
            if self.processed:
                logprob -= math.log(sum(math.exp(self.logprobs[token]) for token in allowed))
        choice = {
            "token_ids": tokens,
            "logprobs": {"content": [{"token_id": token, "logprob": logprob} for token in tokens]},
            "finish_reason": "length" if allowed else "stop",
            "weight_versions": [{"version": self.label, "start": 0, "end": len(tokens)}],
        }
        return {"model": model, "choices": [choice]}


@asynccontextmanager
async def standing_in(port: int = 0) -> AsyncIterator[PolicyStandIn]:
    """One on a port of loopback; 0: a free one."""
    talks: set[asyncio.Task[Any]] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        own = asyncio.current_task()
        assert own is not None
        talks.add(own)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
            content = await reader.readexactly(int(headers.get("content-length", 0)))
            path = urlsplit(head[0].split(" ")[1]).path
            status, answer = await found.answer(path, json.loads(content) if content else None)
            written = json.dumps(answer).encode()
            writer.write(
                f"HTTP/1.1 {status} Status\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(written)}\r\nConnection: close\r\n\r\n".encode()
                + written
            )
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # who asked has gone
        finally:
            talks.discard(own)
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", port)
    found = PolicyStandIn(server.sockets[0].getsockname()[1])
    try:
        yield found
    finally:
        server.close()
        left = list(talks)
        for task in left:  # of questions that whoever asked took back
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


async def serve(port: int) -> None:
    """Answer until the process is ended; the first line of output says which process and GPUs it has."""
    async with standing_in(port):
        print(json.dumps({"pid": os.getpid(), "gpus": os.environ.get("CUDA_VISIBLE_DEVICES")}), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":  # started as vLLM is, with all of its arguments
    asyncio.run(serve(int(sys.argv[sys.argv.index("--port") + 1])))
