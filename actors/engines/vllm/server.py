"""One vLLM server over HTTP: what it is asked, and what its failures mean.

Waits for each response (`timeout_s` of the call). Raises ServerTroubled for what may pass, EngineFailed for a request
that no server would take.
"""

from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import httpx2
import msgspec

from hindcast.core.errors import EngineFailed, HindcastError

CONNECT_S = 5.0
MOST_SHOWN = 300
"""Characters of a server's own words in a message."""
Trouble = Literal["unreachable", "refused", "unusable", "wrong_version", "behind", "no_weights", "ended"]
"""`refused`: it answers with an error; `unusable`: with what is no answer; `behind`: others have new weights, and it has not;
`no_weights`: they could not be laid out for it; `ended`: its process is gone."""

Told = TypeVar("Told")


class ServerTroubled(HindcastError):
    """A server gave no answer, or one that cannot be used; a later one may."""

    def __init__(self, trouble: Trouble, detail: str) -> None:
        super().__init__(detail)
        self.trouble: Trouble = trouble


class UnknownModel(ServerTroubled):
    """A server has no model or adapter of the name that a request gives."""

    def __init__(self, detail: str) -> None:
        super().__init__("behind", detail)


class _Refusal(msgspec.Struct, frozen=True):
    param: str | None = None
    """What of the request it is about."""


class _Refused(msgspec.Struct, frozen=True):
    error: _Refusal


class _Model(msgspec.Struct, frozen=True):
    id: str


class VllmServer:
    """A server at one address; an async context manager."""

    def __init__(self, address: str, *, connections: int = 256) -> None:
        """`connections` at most at the same time."""
        self.address = address.rstrip("/")
        self._client = httpx2.AsyncClient(
            base_url=self.address,
            trust_env=False,  # a proxy of the environment has no business between actors and their servers
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
        """One answer, as it came. Cancelling the call takes the request out of the server's batch."""
        return await self._request("POST", "/inference/v1/generate", body, timeout_s=timeout_s)

    async def models(self, *, timeout_s: float) -> list[str]:
        """Names of what a request may ask for: the model, and its adapters."""
        found = await self._told("GET", "/v1/models", "data", list[_Model], timeout_s=timeout_s)
        return [model.id for model in found]

    async def load_adapter(self, name: str, folder: str, *, timeout_s: float) -> None:
        """Take the adapter of a folder, a path on the server's machine, beside those there are; it is asked for by `name`."""
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
        """Take no question under this name any more; answers under way go on with the adapter."""
        await self._request("POST", "/v1/unload_lora_adapter", {"lora_name": name}, timeout_s=timeout_s)

    async def is_healthy(self, *, timeout_s: float) -> bool:
        """Whether it takes requests."""
        try:
            await self._request("GET", "/health", timeout_s=timeout_s)
        except ServerTroubled:
            return False
        return True

    async def label(self, *, timeout_s: float) -> str:
        """What the weights it has now are called; `default`: nobody has named them."""
        return await self._told("GET", "/weight_info", "weight_version", str, timeout_s=timeout_s)

    async def is_paused(self, *, timeout_s: float) -> bool:
        """Whether it samples nothing at present."""
        return await self._told("GET", "/is_paused", "is_paused", bool, timeout_s=timeout_s)

    async def pause(self, mode: str, *, timeout_s: float) -> None:
        """Sample nothing more until `resume`. `mode`: what becomes of answers under way (`vllm.pause`)."""
        await self._request("POST", f"/pause?mode={mode}&clear_cache=false", timeout_s=timeout_s)

    async def resume(self, *, timeout_s: float) -> None:
        """Sample again."""
        await self._request("POST", "/resume", timeout_s=timeout_s)

    async def reload(self, folder: str, *, timeout_s: float) -> None:
        """Take the weights of a model folder, a path on the server's machine."""
        call = {"method": "reload_weights", "kwargs": {"weights_path": folder}}
        await self._request("POST", "/collective_rpc", call, timeout_s=timeout_s)

    async def forget_prompts(self, *, timeout_s: float) -> None:
        """Drop what was computed of prompts and answers, also of those under way: they are read again."""
        path = "/reset_prefix_cache?reset_running_requests=true"
        if not await self._told("POST", path, "success", bool, timeout_s=timeout_s):
            raise ServerTroubled("refused", f"{self.address} did not forget the prompts it had read")

    async def name_weights(self, label: str, *, timeout_s: float) -> None:
        """Call the weights it has now so, on every token sampled from them."""
        await self._request("POST", "/update_weight_version", {"new_version": label}, timeout_s=timeout_s)

    async def _told(self, method: str, path: str, name: str, kind: type[Told], *, timeout_s: float) -> Told:
        """One field of an answer. Raises ServerTroubled, EngineFailed."""
        content = await self._request(method, path, timeout_s=timeout_s)
        try:
            answer = msgspec.json.decode(content, type=dict[str, Any])
            return msgspec.convert(answer[name], type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError) as error:
            why = f"it has no {name!r}" if isinstance(error, KeyError) else str(error)
            raise ServerTroubled(
                "unusable", f"{self.address}{path} did not answer as vLLM does: {why}"
            ) from None

    async def _request(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, timeout_s: float
    ) -> bytes:
        """Raises ServerTroubled, EngineFailed."""
        try:
            response = await self._client.request(
                method,
                path,
                content=None if body is None else msgspec.json.encode(body),
                headers=None if body is None else {"content-type": "application/json"},
                timeout=httpx2.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s)),
            )
        except httpx2.HTTPError as error:
            words = str(error) or type(error).__name__
            raise ServerTroubled("unreachable", f"{self.address} is out of reach: {words}") from None
        if response.is_success:
            return bytes(response.content)
        said = response.text[:MOST_SHOWN]
        if response.status_code in (400, 413, 422):
            raise EngineFailed(
                f"{self.address}{path} does not take the request ({response.status_code}): {said}"
            )
        words = f"{self.address}{path} says {response.status_code}: {said}"
        raise (UnknownModel(words) if _is_about_the_model(response) else ServerTroubled("refused", words))


def _is_about_the_model(response: httpx2.Response) -> bool:
    """Whether it says that there is no model of the request's name: not found are unknown paths, too."""
    if response.status_code != httpx2.codes.NOT_FOUND:
        return False
    try:
        return msgspec.json.decode(response.content, type=_Refused).error.param == "model"
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
