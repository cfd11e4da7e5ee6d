"""A real vLLM server, build for CPUs, with adapters: an answer is of the one that it named, whatever comes meanwhile."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from random import Random

import httpx2
import pytest
import torch

from actors.engines.base import Generation
from actors.engines.rescoring import GivenAnswer, Rescorer
from actors.engines.vllm.engine import VllmEngine
from actors.engines.vllm.server import VllmServer
from actors.engines.vllm.weights import Adapters, label_of
from actors.policy_server.command import HOST, SERVED, server_command, server_environment
from actors.policy_server.folders import AdapterAlone, VersionFolders
from actors.policy_server.giving import GivingAdapters
from actors.policy_server.process import running
from app.bench.untied import write_untied
from app.policy_servers import free_port
from app.vllm_python import server_python
from core.models.adapter import adapter_of, add_adapter, encode_adapter
from core.models.policy import WEIGHTS, load_policy
from core.sampling import Sampling
from core.settings import Settings
from events.catalogue import PolicyServerTroubled

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(3600)]

RUN = "served"
RANK = 4
SETTINGS = Settings.model_validate({"learner": {"lora_rank": RANK}, "vllm": {"start_timeout_s": 2400}})
AGREES = 1e-3
"""Largest difference of a log-probability in float32; 3e-5 was seen."""
UNDER_WAY = 64
"""Tokens of answers under way after which other adapters come: more than one step of the server comes to."""


def write_adapter(base: Path, version: int, path: Path) -> Path:
    """An adapter of random factors, far from none."""
    model = load_policy(base).model
    add_adapter(model, rank=RANK, alpha=16, targets=("all-linear",), seed=version)
    drawn = torch.Generator().manual_seed(version)
    with torch.no_grad():
        for name, value in adapter_of(model).items():
            if ".lora_B." in name:
                value.copy_(0.2 * torch.randn(value.shape, generator=drawn))
    path.write_bytes(encode_adapter(model))
    return path


class Served:
    """A server with adapters, an engine that asks it, and the file of each version."""

    def __init__(self, server: VllmServer, engine: VllmEngine, files: Sequence[Path], root: Path) -> None:
        self.server = server
        self.engine = engine
        self.files = files
        self._giving = GivingAdapters(RUN, files[0].parent, SETTINGS.vllm)
        self._folders = VersionFolders(root / "versions", files[0].parent, AdapterAlone())
        self._rescorer = Rescorer(files[0].parent, threads=1, tokens_per_forward=4096)
        random = Random(1)
        self._prompts = [
            [random.randrange(50, 2000) for _ in range(random.randrange(3, 200))] for _ in range(6)
        ]

    async def give(self, version: int) -> None:
        folder = self._folders.put(version, f"{version:064x}", self.files[version])
        await self._giving.give(self.server, version, folder)
        await self.engine.adopt(version, folder)

    async def ask(self, *, tokens: int) -> list[tuple[GivenAnswer, Generation]]:
        """As many answers as there are prompts, of so many tokens at most."""
        samplings = [
            Sampling(temperature=1.0, max_tokens=tokens, seed=seed) for seed in range(len(self._prompts))
        ]
        asked = list(zip(self._prompts, samplings, strict=True))
        found = await asyncio.gather(*(self.engine.generate(*one) for one in asked))
        return [
            (
                GivenAnswer(
                    prompt_ids=prompt,
                    action_ids=answer.token_ids,
                    logprobs=answer.logprobs,
                    sampling=sampling,
                    allowed=answer.allowed,
                ),
                answer,
            )
            for (prompt, sampling), answer in zip(asked, found, strict=True)
        ]

    async def sampled(self) -> float:
        """Tokens that the server has sampled so far, as it counts them."""
        async with httpx2.AsyncClient(trust_env=False) as client:
            counted = (await client.get(f"{self.server.address}/metrics", timeout=60)).text
        (line,) = [line for line in counted.splitlines() if line.startswith("vllm:generation_tokens_total")]
        return float(line.rpartition(" ")[2])

    def largest_difference(self, answers: Sequence[tuple[GivenAnswer, Generation]], version: int) -> float:
        """From what a version gives, of all tokens."""
        self._rescorer.load(self.files[version])
        scored = self._rescorer.rescore([given for given, _ in answers])
        return max(difference for one in scored for difference in one.differences)


def versions_of(answers: Sequence[tuple[GivenAnswer, Generation]]) -> set[int]:
    return {version for _, answer in answers for version in answer.versions}


async def test_an_answer_is_of_the_adapter_that_it_named_whatever_comes_meanwhile(tmp_path: Path) -> None:
    base = write_untied(tmp_path / "base", seed=0, width=64, inner=128, layers=2, heads=2)
    adapters = [write_adapter(base, version, tmp_path / f"adapter-{version}") for version in range(1, 5)]
    port = free_port(tmp_path / "nowhere.json")
    command = server_command(server_python(SETTINGS), base, port=port, settings=SETTINGS)
    address = f"http://{HOST}:{port}"
    troubles: list[PolicyServerTroubled] = []

    async def tell(fact: PolicyServerTroubled) -> None:
        troubles.append(fact)

    engine = VllmEngine(
        base,
        lambda: (address,),
        weights=Adapters(RUN),
        settings=SETTINGS.vllm,
        answer_timeout_s=1200,
        tell=tell,
    )
    async with (
        running(command, server_environment(SETTINGS), output=tmp_path / "output.log") as process,
        VllmServer(address) as server,
    ):
        await process.wait_until_healthy(server, timeout_s=SETTINGS.vllm.start_timeout_s)
        await GivingAdapters(RUN, base, SETTINGS.vllm).give(server, 0, base)
        async with engine:
            served = Served(server, engine, [base / WEIGHTS, *adapters], tmp_path)
            for version in (0, 1, 2):
                if version:
                    await served.give(version)
                answers = await served.ask(tokens=16)
                assert versions_of(answers) == {version}
                assert served.largest_difference(answers, version) < AGREES
                assert served.largest_difference(answers, version + 1) > 1.0, "another one would be noticed"
            assert await server.models(timeout_s=60) == [SERVED, label_of(RUN, 1), label_of(RUN, 2)]

            already = await served.sampled()
            asking = asyncio.create_task(served.ask(tokens=400))
            while await served.sampled() < already + UNDER_WAY:  # noqa: ASYNC110 - servers tell nobody
                await asyncio.sleep(0.05)
            await served.give(3)
            await served.give(4)
            answers = await served.ask(tokens=16)
            assert versions_of(answers) == {4}
            assert served.largest_difference(answers, 4) < AGREES
            begun_before = await asking
            assert versions_of(begun_before) == {2}
            assert served.largest_difference(begun_before, 2) < AGREES
            assert await server.models(timeout_s=60) == [SERVED, label_of(RUN, 3), label_of(RUN, 4)]
    assert not troubles
