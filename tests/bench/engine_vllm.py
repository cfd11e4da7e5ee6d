"""The engine in process beside a vLLM server, on one policy: how fast each samples, and how exactly.

The same calls, answer lengths, number format (that of config.json) and threads. The server is the one that a run starts here
(`actors.policy_servers`), asked by the engine that actors ask it with, so that what HTTP and the server's two processes cost
is counted as a run pays it. Two rates: tokens per second, which is what a run gets on this machine and what other work
beside it changes, and tokens per second of processor time of everybody who takes part, which it changes little.

`mismatch_kl` is the learner's: the mean over tokens of exp(d) - d - 1, d = log pi - log mu, pi computed by the learner's
pass (`core.models.logprobs`) and mu what the engine said it sampled from, at equal weights.
"""

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path

import msgspec
import numpy as np
import psutil
import torch

from bench.comparison import Comparison, summarise
from bench.engine import TEMPERATURE, Asked, ask_all, tokens_of, warm_up
from bench.engine_calls import Episode, describe
from hindcast.actors.engines.base import PolicyEngine
from hindcast.actors.engines.in_process import InProcessEngine
from hindcast.actors.engines.vllm.engine import VllmEngine
from hindcast.actors.engines.vllm.server import VllmServer
from hindcast.actors.engines.vllm.weights import WholeWeights
from hindcast.actors.policy_servers.command import (
    HOST,
    own_server,
    require_policy_servers,
)
from hindcast.actors.policy_servers.server_process import running
from hindcast.actors.policy_servers.weight_delivery import VersionSource, giving_for
from hindcast.app.system.policy_servers import free_ports
from hindcast.app.system.supervisor import die_with_parent
from hindcast.core.errors import EngineFailed
from hindcast.core.models.logprobs import SampleToScore, score
from hindcast.core.models.policy import load_policy
from hindcast.core.settings.schema import PolicySettings, Settings
from hindcast.events.catalogue import PolicyServerTroubled

RUN = "bench"
PEER = "vLLM"
OURS = "in process"
TOKENS_PER_FORWARD = 1024
ANSWER_S = 600.0
"""Longest that an answer is waited for."""


class Rates(msgspec.Struct, frozen=True):
    """Output tokens per second of one measurement."""

    wall: float
    cpu: float
    """Per second of processor time, of all processes that took part."""


class Mismatch(msgspec.Struct, frozen=True, kw_only=True):
    """How far an engine's log-probabilities are from those that the learner computes."""

    engine: str
    tokens: int
    mismatch_kl: float
    """Nats per token."""
    largest: float
    """Difference of a token's log-probability, absolute."""


class Both:
    """The two engines on one policy."""

    def __init__(
        self, folder: Path, server: VllmEngine, process: int, *, contexts: int, policy: PolicySettings
    ) -> None:
        """`process`: of the vLLM server; its own children are counted with it."""
        self._folder = folder
        self._server = server
        self._process = psutil.Process(process)
        self._contexts = contexts
        self._policy = policy

    async def compare(
        self, figure: str, episodes: Sequence[Episode], *, repeats: int, said: Callable[[str], None]
    ) -> tuple[list[Comparison], dict[str, list[Asked]]]:
        """Both in turn, who goes first alternating: the two rates, and what each answered the first time."""
        pairs: list[tuple[Rates, Rates]] = []
        answered: dict[str, list[Asked]] = {}
        for number in range(repeats):
            order = (OURS, PEER) if number % 2 == 0 else (PEER, OURS)
            rates = {}
            for name in order:
                rates[name], asked = await self._measured(name, episodes)
                answered.setdefault(name, asked)
            ours, peer = rates[OURS], rates[PEER]
            pairs.append((ours, peer))
            said(
                f"{figure}: {OURS} {ours.wall:.4g} tokens/s, {PEER} {peer.wall:.4g}; "
                f"{ours.cpu:.4g} and {peer.cpu:.4g} per CPU s ({number + 1}/{repeats})"
            )
        drawn = ", ".join(f"{tokens_of(asked) / len(asked):.1f} {name}" for name, asked in answered.items())
        detail = f"{describe(episodes)} at most, drawn: {drawn}; {self._contexts} contexts"
        return [
            summarise(
                [(getattr(ours, kind), getattr(peer, kind)) for ours, peer in pairs],
                figure=figure,
                unit=unit,
                peer_name=PEER,
                goal=None,
                detail=detail,
            )
            for kind, unit in (("wall", "tokens/s"), ("cpu", "tokens/CPU s"))
        ], answered

    async def _measured(self, name: str, episodes: Sequence[Episode]) -> tuple[Rates, list[Asked]]:
        if name == PEER:
            return await self._timed(
                self._server, episodes, lambda: time.process_time() + _spent_below(self._process)
            )
        async with InProcessEngine(self._folder, self._policy) as engine:  # anew: with nothing read before
            await warm_up(engine)
            return await self._timed(engine, episodes, time.process_time)

    async def _timed(
        self, engine: PolicyEngine, episodes: Sequence[Episode], spent: Callable[[], float]
    ) -> tuple[Rates, list[Asked]]:
        cpu, wall = spent(), time.perf_counter()
        asked = await ask_all(engine, episodes, contexts=self._contexts)
        wall_s, cpu_s = time.perf_counter() - wall, spent() - cpu
        return Rates(tokens_of(asked) / wall_s, tokens_of(asked) / cpu_s), asked


@asynccontextmanager
async def serving(
    folder: Path, scratch: Path, *, contexts: int, threads: int, python: str
) -> AsyncIterator[Both]:
    """A vLLM server of the policy in `folder`, and both engines.

    Raises:
        SettingsError: there is no vLLM, or its build here would not compute this policy.
        EngineFailed: the server did not start.

    """
    settings = Settings.model_validate(
        {"policy": {"base": str(folder), "engine": "vllm", "threads": threads}, "vllm": {"python": python}}
    )
    require_policy_servers(settings)
    port = free_ports(1)[0]
    command, environment = own_server(settings, folder, port=port)
    address = f"http://{HOST}:{port}"

    async def tell(fact: PolicyServerTroubled) -> None:
        raise EngineFailed(f"the vLLM server is in trouble ({fact.trouble}): {fact.detail}")

    async with (
        running(command, environment, output=scratch / "vllm.log", before=die_with_parent) as process,
        VllmServer(address) as server,
    ):
        await process.wait_until_healthy(server, timeout_s=settings.vllm.start_timeout_s)
        delivery = giving_for(settings, folder, run=RUN)
        await delivery.give(server, VersionSource(0, lambda: nullcontext(folder)))
        async with VllmEngine(
            folder,
            lambda: (address,),
            weights=WholeWeights(RUN),
            settings=settings.vllm,
            answer_timeout_s=ANSWER_S,
            tell=tell,
        ) as engine:
            await warm_up(engine)
            yield Both(folder, engine, process.pid, contexts=contexts, policy=settings.policy)


@torch.inference_mode()
def mismatch_of(folder: Path, engine: str, asked: Sequence[Asked]) -> Mismatch:
    """What the learner's pass over the policy in `folder` says of answers that were sampled from the same weights."""
    samples = [SampleToScore(one.call.prompt_ids, one.answer.token_ids) for one in asked]
    found = score(
        load_policy(folder).model, samples, temperature=TEMPERATURE, tokens_per_forward=TOKENS_PER_FORWARD
    )
    learned = torch.cat(found).double().numpy()
    sampled = np.concatenate([np.asarray(one.answer.logprobs, dtype=np.float32) for one in asked])
    apart = learned - sampled
    return Mismatch(
        engine=engine,
        tokens=len(apart),
        mismatch_kl=float(np.mean(np.exp(apart) - apart - 1)),
        largest=float(np.max(np.abs(apart))),
    )


async def measure(
    folder: Path,
    scratch: Path,
    mixtures: Mapping[str, Sequence[Episode]],
    *,
    repeats: int,
    contexts: int,
    threads: int,
    python: str,
    said: Callable[[str], None],
) -> tuple[list[Comparison], list[Mismatch]]:
    """Every mixture `repeats` times on both engines; of what each answered first, how exact it was."""
    found: list[Comparison] = []
    answered: dict[str, list[Asked]] = {OURS: [], PEER: []}
    async with serving(folder, scratch, contexts=contexts, threads=threads, python=python) as both:
        for figure, episodes in mixtures.items():
            rates, asked = await both.compare(figure, episodes, repeats=repeats, said=said)
            found += rates
            for name, own in asked.items():
                answered[name] += own
    return found, [mismatch_of(folder, name, own) for name, own in answered.items()]


def _spent_below(process: psutil.Process) -> float:
    """Seconds of processor time of a process and all below it that live."""
    seconds = 0.0
    for one in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = one.cpu_times()
            seconds += times.user + times.system
    return seconds
