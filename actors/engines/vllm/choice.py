"""The probability of one token among two, from a vLLM server.

One request draws one token, restricted to the two. The server must run with `--logprobs-mode processed_logprobs`, as for
a policy (docs/vllm.md): then the token's log-probability is relative to the two. The first request allows a single
token, whose log-probability is 0 only in that mode.
"""

from collections.abc import Mapping, Sequence
from math import exp

from hindcast.actors.engines.base import Generation
from hindcast.actors.engines.vllm.generate_wire import read_answer, request_body
from hindcast.actors.engines.vllm.server import VllmServer
from hindcast.actors.engines.vllm.weights import Span
from hindcast.core.domain.sampling import Sampling
from hindcast.core.errors import EngineFailed

ONE_TOKEN = Sampling(temperature=1.0, max_tokens=1, seed=0)
EXACT = 1e-6
"""Largest difference of a log-probability from 0 by rounding."""


class _OwnWeights:
    """The weights that the server was started with; they never change."""

    run = ""

    def request_fields(self, version: int) -> Mapping[str, str]:
        return {}

    def versions(self, spans: Sequence[Span], tokens: int, *, model: str, requested: int) -> list[int]:
        return [requested] * tokens

    async def shown_by(self, server: VllmServer, *, timeout_s: float) -> int | None:
        return 0


class ServedChoice:
    """Asks one server about two tokens. The caller opens and closes the server."""

    def __init__(self, server: VllmServer, *, timeout_s: float) -> None:
        self._server = server
        self._timeout_s = timeout_s
        self._checked = False

    async def probability(self, prompt_ids: Sequence[int], *, token: int, other: int) -> float:
        """P(token) among the two after a prompt, in [0, 1].

        Raises:
            ServerTroubled, Unusable: the server gives no answer, or an unusable one.
            EngineFailed: it rejects the request, or reports other log-probabilities.
        """
        if not self._checked:
            await self._check_mode(prompt_ids, token)
        generation = await self._draw(prompt_ids, [token, other])
        likely = min(1.0, exp(generation.logprobs[0]))
        return likely if generation.token_ids[0] == token else 1.0 - likely

    async def _check_mode(self, prompt_ids: Sequence[int], token: int) -> None:
        (logprob,) = (await self._draw(prompt_ids, [token])).logprobs
        if abs(logprob) > EXACT:
            raise EngineFailed(
                f"{self._server.address} gives the only token that it may draw a log-probability of {logprob:.3f}, not 0. Start "
                "it with --logprobs-mode processed_logprobs (docs/vllm.md)."
            )
        self._checked = True

    async def _draw(self, prompt_ids: Sequence[int], allowed: list[int]) -> Generation:
        weights = _OwnWeights()
        body = request_body(prompt_ids, ONE_TOKEN, stops=(), version_fields={}, allowed=allowed)
        content = await self._server.generate(body, timeout_s=self._timeout_s)
        generation = read_answer(content, weights=weights, requested=0, stops=())
        if len(generation.token_ids) != 1 or generation.token_ids[0] not in allowed:
            raise EngineFailed(
                f"{self._server.address} drew {generation.token_ids} where only {allowed} were allowed: it serves another model, or "
                "does not know allowed_token_ids"
            )
        return generation
