"""The policy on vLLM servers: a `PolicyEngine` over HTTP.

    generate ──> server of this episode ──> answer ──> labels checked ──> Generation
        ^              later, or another server  <────── trouble (one event per period of trouble)
    adopt    ──> waits until every reachable server serves the version; stragglers are set aside

It consumes requests. It waits for a server (`answer_timeout_s`), for one to serve a version (`vllm.start_timeout_s` and a
synchronization), and then for the others (`vllm.straggler_timeout_s`). It produces answers. It does not deliver weights
to servers: the role `policy_server` does, once per server, while any number of actors ask (`actors.policy_servers`).

Invariant 6, for every answer: the server names the weights of every token. A foreign name, or a version older than this
engine had when it asked, rejects the answer, is recorded, and the request is repeated. A newer version than this
engine's is accepted, and held back until the engine has adopted it, so that a step never precedes its version's
adoption. With whole weights and `vllm.pause = "keep"`, one answer may have two versions. Each token carries its own, and
the server recomputes prompt and answer when its weights change, so each log-probability is that of the token's version.
With adapters the request names one. If the server has dropped it for newer ones, the newest is asked for, and its answer
is held back in the same way.

A seed makes a server repeat itself; the in-process engine draws other tokens from the same seed.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeGuard

from transformers import AutoConfig

from hindcast.actors.engines.base import Constraint, Generation, routing_key
from hindcast.actors.engines.guide import FormGuide, Guide, RecordedGuide, Vocabulary
from hindcast.actors.engines.vllm.fleet import Fleet, Tell
from hindcast.actors.engines.vllm.generate_wire import read_answer, request_body, sample_guided
from hindcast.actors.engines.vllm.server import (
    POLL_S,
    CheckResult,
    ServerChecks,
    ServerTroubled,
    UnknownModel,
    VllmServer,
)
from hindcast.actors.engines.vllm.weights import ServedWeights, Unusable, WrongVersion
from hindcast.core.domain.sampling import Sampling
from hindcast.core.errors import EngineFailed
from hindcast.core.models.model_files import stop_tokens, text_config
from hindcast.core.models.tokenizer import load_tokenizer
from hindcast.core.settings.vllm import VllmSettings

LOOK_S = 10.0
"""Time limit of one check which weights a server has."""


class VllmEngine:
    """A `PolicyEngine` over remote servers; an async context manager."""

    def __init__(
        self,
        folder: Path,
        addresses: Callable[[], Sequence[str]],
        *,
        weights: ServedWeights,
        settings: VllmSettings,
        answer_timeout_s: float,
        tell: Tell,
    ) -> None:
        """`folder`: of the policy, for its tokenizer. `addresses`: returns the servers' current addresses. `weights`: how
        requests and answers name versions.

        Raises:
            ModelFileError: the tokenizer cannot be used.
        """
        self.tokenizer: Any = load_tokenizer(folder)
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
        self._stops = stop_tokens(folder, config, self.tokenizer)
        self._vocabulary_size = int(text_config(config).vocab_size)
        self._weights = weights
        self._settings = settings
        self._answer_timeout_s = answer_timeout_s
        self._fleet = Fleet(addresses, backoff_s=settings.backoff_s, check=self._assert_has, tell=tell)
        self._version = -1
        self._changed = asyncio.Condition()
        self._vocabulary: Vocabulary | None = None
        """Built from the tokenizer for the first constraint."""

    @property
    def version(self) -> int:
        """The lowest version that new answers are sampled from."""
        return self._version

    async def __aenter__(self) -> Self:
        """Wait until some server has weights of this run. Raises EngineFailed when none has them in time."""
        await self._fleet.__aenter__()
        try:
            await self._reach(0)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop checking servers, and close the connections."""
        await self._fleet.__aexit__()

    async def adopt(self, version: int, weights: Path) -> None:
        """Wait until the servers sample from this version; see `PolicyEngine.adopt`.

        Raises:
            EngineFailed: they do not in time.
        """
        await self._reach(version)

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, constraint: Constraint | None = None
    ) -> Generation:
        """Sample one answer; see `PolicyEngine.generate`."""
        try:
            async with asyncio.timeout(self._answer_timeout_s):
                if constraint is None:
                    return await self._ask(list(prompt_ids), sampling)
                guide = self._guide(constraint, sampling.max_tokens)
                return await sample_guided(
                    self._ask,
                    list(prompt_ids),
                    sampling,
                    guide,
                    stops=self._stops,
                    version=lambda: self._version,
                )
        except TimeoutError:
            raise EngineFailed(
                f"no policy server gave an answer within {self._answer_timeout_s:g} s (actors.generate_timeout_s)"
            ) from None

    async def _ask(
        self,
        prompt_ids: list[int],
        sampling: Sampling,
        *,
        seed: int | None = None,
        max_tokens: int | None = None,
        allowed: Sequence[int] | None = None,
    ) -> Generation:
        """Ask servers until one answers."""
        while True:
            server = await self._fleet.next_for(routing_key())
            expected = self._version

            def body(version: int) -> dict[str, Any]:
                return request_body(
                    prompt_ids,
                    sampling,
                    stops=self._stops,
                    version_fields=self._weights.request_fields(version),
                    seed=seed,
                    max_tokens=max_tokens,
                    allowed=allowed,
                    seeded=self._settings.request_seeds,
                )

            try:
                async with self._fleet.asking(server):
                    generation = await self._answer(server, body, expected)
            except ServerTroubled as trouble:
                await self._fleet.note_failure(server, trouble)
                continue
            self._fleet.served(server)
            await self._adopted(max(generation.versions))
            return generation

    async def _answer(
        self, server: VllmServer, body: Callable[[int], dict[str, Any]], expected: int
    ) -> Generation:
        """An answer from the expected version, or from a newer one that replaced it. Raises ServerTroubled."""
        requested = expected
        while True:
            try:
                content = await server.generate(body(requested), timeout_s=self._answer_timeout_s)
            except UnknownModel:
                served = await self._version_of(server)
                if served <= requested:
                    raise self._behind_trouble(server, served, requested) from None
                requested = served
            else:
                return self._checked(content, server, expected=expected, requested=requested)

    def _checked(self, content: bytes, server: VllmServer, *, expected: int, requested: int) -> Generation:
        """Parse an answer and check its version. Raises ServerTroubled."""
        try:
            generation = read_answer(content, weights=self._weights, requested=requested, stops=self._stops)
        except Unusable as error:
            raise ServerTroubled("unusable", f"{server.address}: {error}") from None
        except WrongVersion as error:
            raise ServerTroubled("wrong_version", f"{server.address}: {error}") from None
        oldest = min(generation.versions)
        if oldest < expected:
            raise ServerTroubled(
                "wrong_version",
                f"{server.address} sampled from version {oldest}, where it had version {expected} before",
            )
        return generation

    async def _adopted(self, version: int) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._version >= version)

    async def _reach(self, version: int) -> None:
        """Wait until the servers serve `version` or newer; use the oldest version among them.

        It waits for all reachable, healthy servers, but once one has the version, at most `straggler_timeout_s` longer.
        """
        limit_s = self._settings.start_timeout_s + self._settings.sync_timeout_s
        try:
            async with (
                asyncio.timeout(limit_s),
                ServerChecks(self._fleet.servers, self._version_of) as checks,
            ):
                results = await self._wait_for_version(checks, version)
        except TimeoutError:
            raise EngineFailed(
                f"no policy server serves version {version} of run {self._weights.run} within {limit_s:g} s "
                "(vllm.start_timeout_s and vllm.sync_timeout_s). See what policy_server.1 says, or hindcast doctor."
            ) from None
        ready_versions = [result for result in results.values() if _has(result, version)]
        late = {server: result for server, result in results.items() if not _has(result, version)}
        await asyncio.gather(
            *(
                self._fleet.leave_aside(server, self._late_trouble(server, result, version))
                for server, result in late.items()
            )
        )
        # last: a held-back answer continues after this, and its step must follow what the caller appends now
        async with self._changed:
            self._version = max(self._version, min(ready_versions))
            self._changed.notify_all()

    async def _wait_for_version(self, checks: ServerChecks, version: int) -> Mapping[VllmServer, CheckResult]:
        """What the servers show once no server is waited for and one has the version."""
        clock = asyncio.get_running_loop().time
        first_at: float | None = None
        while True:
            results = await checks.run_round()
            if any(_has(result, version) for result in results.values()):
                first_at = clock() if first_at is None else first_at
                if clock() - first_at >= self._settings.straggler_timeout_s or not any(
                    not _has(result, version)
                    and not isinstance(result, ServerTroubled)
                    and self._fleet.is_sound(server)
                    for server, result in results.items()
                ):
                    return results
            await asyncio.sleep(POLL_S)  # servers send no notifications

    async def _version_of(self, server: VllmServer) -> int:
        """The version that a server shows. Raises ServerTroubled."""
        try:
            version = await self._weights.shown_by(server, timeout_s=LOOK_S)
        except EngineFailed as error:  # every vLLM answers such a check: this server is none
            raise ServerTroubled("refused", str(error)) from None
        return -1 if version is None else version

    async def _assert_has(self, server: VllmServer) -> None:
        """Check that a server has the engine's version. Raises ServerTroubled."""
        served = await self._version_of(server)
        if served < self._version:
            raise self._behind_trouble(server, served, self._version)

    def _behind_trouble(self, server: VllmServer, served: int, expected: int) -> ServerTroubled:
        has = "no weights of this run" if served < 0 else f"version {served}"
        return ServerTroubled(
            "behind",
            f"{server.address} has {has} where version {expected} is due: it is asked nothing until it has that",
        )

    def _late_trouble(self, server: VllmServer, result: CheckResult, expected: int) -> ServerTroubled:
        """Why a server is set aside when others have new weights."""
        match result:
            case ServerTroubled():
                return result
            case int():
                return self._behind_trouble(server, result, expected)
            case None:
                return ServerTroubled(
                    "unreachable",
                    f"{server.address} does not say which weights it has where version {expected} is due: it is asked "
                    "nothing until it does",
                )

    def _guide(self, constraint: Constraint, max_tokens: int) -> Guide:
        if self._vocabulary is None:
            self._vocabulary = Vocabulary(self.tokenizer, size=self._vocabulary_size, end_tokens=self._stops)
        if isinstance(constraint, bytes):
            return RecordedGuide(constraint, self._vocabulary)
        return FormGuide(constraint, self._vocabulary, max_tokens=max_tokens)


def _has(result: CheckResult, version: int) -> TypeGuard[int]:
    return isinstance(result, int) and result >= version
