"""HTTP client of one vLLM server, and the meaning of its failures.

It waits for each response (`timeout_s` of the call). It raises ServerTroubled for temporary failures, EngineFailed for a
request that no server would accept.

Which weights servers have is checked concurrently: one hanging server delays no check of another. A turn waits up to
`POLL_S` for its checks; a slower check runs on during the following turns.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import httpx2
import msgspec

from hindcast.core.errors import EngineFailed, HindcastError
from hindcast.core.structs import convert, decode_json

CONNECT_S = 5.0
MOST_SHOWN = 300
"""Characters of a server's own words in a message."""
Trouble = Literal["unreachable", "refused", "unusable", "wrong_version", "behind", "no_weights", "ended"]
"""`refused`: it answers with an error; `unusable`: its answer is invalid; `behind`: others have new weights, it has not;
`no_weights`: they could not be written for it; `ended`: its process is gone.
"""

Told = TypeVar("Told")


class ServerTroubled(HindcastError):
    """A server gave no answer, or an unusable one; a later one may be usable."""

    def __init__(self, trouble: Trouble, detail: str) -> None:
        super().__init__(detail)
        self.trouble: Trouble = trouble


class UnknownModel(ServerTroubled):
    """A server has no model or adapter of the requested name."""

    def __init__(self, detail: str) -> None:
        super().__init__("behind", detail)


class _Refusal(msgspec.Struct, frozen=True):
    param: str | None = None
    """The parameter of the request that the error is about."""


class _Refused(msgspec.Struct, frozen=True):
    error: _Refusal


class _Model(msgspec.Struct, frozen=True):
    id: str


class _DeviceConfig(msgspec.Struct, frozen=True):
    device: str


class _ServerConfig(msgspec.Struct, frozen=True):
    device_config: _DeviceConfig


class WeightOffer(msgspec.Struct, frozen=True):
    """Where a server fetches a file of weights, and what it must be."""

    host: str
    port: int
    token: str
    """What the sender wants to hear before it sends."""
    size: int
    """Bytes of the file."""
    sha256: str


class VllmServer:
    """A server at one address; an async context manager."""

    def __init__(self, address: str, *, connections: int = 256) -> None:
        """`connections`: most at the same time."""
        self.address = address.rstrip("/")
        self._client = httpx2.AsyncClient(
            base_url=self.address,
            trust_env=False,  # a proxy from the environment must not come between actors and their servers
            limits=httpx2.Limits(max_connections=connections, max_keepalive_connections=connections),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def generate(self, body: dict[str, Any], *, timeout_s: float) -> bytes:
        """Return one raw answer. Cancelling the call removes the request from the server's batch."""
        return await self._request("POST", "/inference/v1/generate", body, timeout_s=timeout_s)

    async def models(self, *, timeout_s: float) -> list[str]:
        """Names that a request may ask for: the model, and its adapters."""
        served = await self._request_field("GET", "/v1/models", "data", list[_Model], timeout_s=timeout_s)
        return [model.id for model in served]

    async def load_adapter(self, name: str, folder: str, *, timeout_s: float) -> None:
        """Load the adapter of a folder, a path on the server's machine, next to the others; requests ask for it by `name`."""
        call = {"lora_name": name, "lora_path": folder}
        try:
            await self._request("POST", "/v1/load_lora_adapter", call, timeout_s=timeout_s)
        except ServerTroubled as trouble:
            if trouble.trouble != "refused":
                raise
            raise ServerTroubled(
                "refused",
                f"{trouble} (a server takes adapters from a folder that it sees under this path, where it was started with "
                "--enable-lora, a --max-lora-rank of learner.lora_rank at least, and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True: "
                "docs/vllm.md)",
            ) from None

    async def unload_adapter(self, name: str, *, timeout_s: float) -> None:
        """Reject new requests under this name; running answers keep the adapter."""
        await self._request("POST", "/v1/unload_lora_adapter", {"lora_name": name}, timeout_s=timeout_s)

    async def is_healthy(self, *, timeout_s: float) -> bool:
        """Whether it accepts requests."""
        try:
            await self._request("GET", "/health", timeout_s=timeout_s)
        except ServerTroubled:
            return False
        return True

    async def label(self, *, timeout_s: float) -> str:
        """The label of its current weights; `default`: they were never labelled."""
        return await self._request_field("GET", "/weight_info", "weight_version", str, timeout_s=timeout_s)

    async def is_paused(self, *, timeout_s: float) -> bool:
        """Whether sampling is paused."""
        return await self._request_field("GET", "/is_paused", "is_paused", bool, timeout_s=timeout_s)

    async def pause(self, mode: str, *, timeout_s: float) -> None:
        """Pause sampling until `resume`. `mode`: what happens to running answers (`vllm.pause`)."""
        await self._request("POST", f"/pause?mode={mode}&clear_cache=false", timeout_s=timeout_s)

    async def resume(self, *, timeout_s: float) -> None:
        """Resume sampling."""
        await self._request("POST", "/resume", timeout_s=timeout_s)

    async def reload(self, folder: str, *, timeout_s: float) -> None:
        """Load the weights of a model folder, a path on the server's machine."""
        call = {"method": "reload_weights", "kwargs": {"weights_path": folder}}
        await self._request("POST", "/collective_rpc", call, timeout_s=timeout_s)

    async def receive_weights(self, offer: WeightOffer, *, timeout_s: float) -> None:
        """Have every worker fetch a file of weights, check its digest and load it; raises ServerTroubled if one does not.

        The weights are then the previous ones, unless loading itself failed. Needs our methods in the workers
        (`actors/engines/vllm/worker`).
        """
        arguments = msgspec.to_builtins(offer) | {"timeout_s": timeout_s}
        call = {
            "method": "receive_weights",
            "kwargs": {name: str(value) for name, value in arguments.items()},
        }
        await self._request("POST", "/collective_rpc", call, timeout_s=timeout_s)

    async def repack_head(self, *, timeout_s: float) -> None:
        """Make a head that is tied to the embedding compute with new weights, which vLLM's build for CPUs does not by itself.

        Raises:
            ServerTroubled: it computes on a CPU and lacks our methods, so its head would stay the old one.
        """
        try:
            await self._request("POST", "/collective_rpc", {"method": "repack_head"}, timeout_s=timeout_s)
        except ServerTroubled as trouble:
            if trouble.trouble != "refused":
                raise
            if await self.device(timeout_s=timeout_s) != "cpu":
                return
            raise ServerTroubled(
                "refused",
                f"{self.address} computes on a CPU, where vLLM keeps the old head of a policy that shares it with its embedding "
                f"(tie_word_embeddings): its answers would not come from the version that they name. Start it with "
                f"--worker-extension-cls as in docs/vllm.md, use a policy with a head of its own, or train an adapter ({trouble})",
            ) from None

    async def device(self, *, timeout_s: float) -> str:
        """Kind of device that it computes on, as `cpu` or `cuda`."""
        path = "/server_info?config_format=json"
        config = await self._request_field("GET", path, "vllm_config", _ServerConfig, timeout_s=timeout_s)
        return config.device_config.device

    async def forget_prompts(self, *, timeout_s: float) -> None:
        """Drop the cache of prompts and answers; those of running requests are computed again."""
        path = "/reset_prefix_cache?reset_running_requests=true"
        if not await self._request_field("POST", path, "success", bool, timeout_s=timeout_s):
            raise ServerTroubled("refused", f"{self.address} did not forget the prompts it had read")

    async def name_weights(self, label: str, *, timeout_s: float) -> None:
        """Label its current weights; the label marks every token sampled from them."""
        await self._request("POST", "/update_weight_version", {"new_version": label}, timeout_s=timeout_s)

    async def _request_field(
        self, method: str, path: str, name: str, kind: type[Told], *, timeout_s: float
    ) -> Told:
        """Return one field of an answer. Raises ServerTroubled, EngineFailed."""
        content = await self._request(method, path, timeout_s=timeout_s)
        try:
            answer = decode_json(content, dict[str, Any])
            return convert(answer[name], kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError) as error:
            problem = f"it has no {name!r}" if isinstance(error, KeyError) else str(error)
            raise ServerTroubled(
                "unusable", f"{self.address}{path} did not answer as vLLM does: {problem}"
            ) from None

    async def _request(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, timeout_s: float
    ) -> bytes:
        """Send a request. Raises ServerTroubled, EngineFailed."""
        try:
            response = await self._client.request(
                method,
                path,
                content=None if body is None else msgspec.json.encode(body),
                headers=None if body is None else {"content-type": "application/json"},
                timeout=httpx2.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s)),
            )
        except httpx2.HTTPError as error:
            problem = str(error) or type(error).__name__
            raise ServerTroubled("unreachable", f"{self.address} is out of reach: {problem}") from None
        if response.is_success:
            return bytes(response.content)
        answer_text = response.text[:MOST_SHOWN]
        if response.status_code in (400, 413, 422):
            raise EngineFailed(
                f"{self.address}{path} rejects the request ({response.status_code}): {answer_text}"
            )
        problem = f"{self.address}{path} says {response.status_code}: {answer_text}"
        raise (UnknownModel(problem) if _is_about_the_model(response) else ServerTroubled("refused", problem))


def _is_about_the_model(response: httpx2.Response) -> bool:
    """Whether the error says that the requested model is missing; unknown paths are "not found" too."""
    if response.status_code != httpx2.codes.NOT_FOUND:
        return False
    try:
        return decode_json(response.content, _Refused).error.param == "model"
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


POLL_S = 0.2
"""Pause between two checks which weights a server has."""

CheckResult = int | ServerTroubled | None
"""A version (-1: weights of another run); or why a server shows none; or None: its first check is running."""


class ServerChecks:
    """Repeated checks; an async context manager that cancels running checks at its end."""

    def __init__(
        self, servers: Callable[[], Sequence[VllmServer]], check: Callable[[VllmServer], Awaitable[int]]
    ) -> None:
        """`check` raises ServerTroubled."""
        self._servers = servers
        self._check = check
        self._tasks = asyncio.TaskGroup()
        self._under_way: dict[VllmServer, asyncio.Task[None]] = {}
        self._results: dict[VllmServer, CheckResult] = {}

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._under_way.values():
            task.cancel()
        await self._tasks.__aexit__(None, None, None)  # the caller's errors belong in no group

    async def run_round(self) -> dict[VllmServer, CheckResult]:
        """Start a check of every server without a running one; return each server's latest result."""
        servers = self._servers()
        for server in servers:
            if server not in self._under_way:
                self._under_way[server] = self._tasks.create_task(self._note(server))
        if self._under_way:
            await asyncio.wait(self._under_way.values(), timeout=POLL_S)
        return {server: self._results.get(server) for server in servers}

    async def _note(self, server: VllmServer) -> None:
        try:
            self._results[server] = await self._check(server)
        except ServerTroubled as trouble:
            self._results[server] = trouble
        finally:
            del self._under_way[server]
