"""A real vLLM server, build for CPUs: what it samples is what we compute, and new weights show in answers and versions.

Once with a head of its own and weights from folders, once with a head that is tied to the embedding and streamed weights.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from random import Random

import httpx2
import pytest
import pytest_asyncio
from safetensors.torch import load_file, save_file
from structlog.testing import capture_logs

from bench.untied import write_untied
from hindcast.actors.engines.base import Constraint, Generation
from hindcast.actors.engines.rescorer import GivenAnswer, Rescorer
from hindcast.actors.engines.vllm.engine import VllmEngine
from hindcast.actors.engines.vllm.server import VllmServer
from hindcast.actors.engines.vllm.weights import WholeWeights
from hindcast.actors.policy_servers.command import HOST, own_server
from hindcast.actors.policy_servers.server_process import running
from hindcast.actors.policy_servers.version_folders import VersionFolders, WholeModelLayout
from hindcast.actors.policy_servers.weight_delivery import PublishedFile, VersionSource, WholeWeightDelivery
from hindcast.app.system.policy_servers import free_ports
from hindcast.core.domain.sampling import Sampling
from hindcast.core.grammar.answer_constraints import FreeText
from hindcast.core.ids import digest_hex
from hindcast.core.models.policy import WEIGHTS
from hindcast.core.settings.schema import Settings
from hindcast.core.settings.vllm import VllmSettings
from hindcast.events.catalogue import PolicyServerTroubled
from hindcast.events.envelope import BlobRef

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

RUN = "served"
SETTINGS = Settings.model_validate({"vllm": {"python": os.environ.get("HINDCAST_VLLM_PYTHON", "")}})
"""`make gpu` names the Python of an environment with vLLM for GPUs."""
AGREES = 1e-3
"""Largest difference of a log-probability in float32; 5e-5 was seen."""


UNDER_WAY = 64
"""Tokens after which weights change: of thousands, and more than one step of the server comes to."""


class Served:
    """A server, an engine that asks it, and the policies of versions 0 and 1."""

    def __init__(
        self, server: VllmServer, delivery: WholeWeightDelivery, engine: VllmEngine, folders: Sequence[Path]
    ) -> None:
        self.server = server
        self.delivery = delivery
        self.engine = engine
        self.folders = folders
        self.troubles: list[PolicyServerTroubled] = []
        self.troubled = asyncio.Event()
        self._rescorer = Rescorer(folders[0], threads=1, tokens_per_forward=4096)

    async def give(self, version: int) -> None:
        folder = self.folders[version % 2]
        content = (folder / WEIGHTS).read_bytes()
        ref = BlobRef(digest_hex(content), len(content))
        source = VersionSource(version, lambda: nullcontext(folder), PublishedFile(folder / WEIGHTS, ref))
        await self.delivery.give(self.server, source)
        await self.engine.adopt(version, self.folders[version % 2])

    async def ask(
        self,
        prompts: Sequence[list[int]],
        *,
        temperature: float,
        tokens: int,
        constraint: Constraint | None = None,
    ) -> list[tuple[GivenAnswer, Generation]]:
        samplings = [
            Sampling(temperature=temperature, max_tokens=tokens, seed=seed) for seed in range(len(prompts))
        ]
        found = await asyncio.gather(
            *(
                self.engine.generate(prompt, sampling, constraint)
                for prompt, sampling in zip(prompts, samplings, strict=True)
            )
        )
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
            for prompt, sampling, answer in zip(prompts, samplings, found, strict=True)
        ]

    async def sampled(self) -> float:
        """Tokens that the server has sampled so far, as it counts them."""
        async with httpx2.AsyncClient(trust_env=False) as client:
            counted = (await client.get(f"{self.server.address}/metrics")).text
        (line,) = [line for line in counted.splitlines() if line.startswith("vllm:generation_tokens_total")]
        return float(line.rpartition(" ")[2])

    def differences(self, given: Sequence[GivenAnswer], version: int) -> list[list[float]]:
        """Per answer and token, from what the weights of a version give."""
        self._rescorer.load(self.folders[version % 2] / WEIGHTS)
        return [one.differences for one in self._rescorer.rescore(given)]


def tie_head(folder: Path) -> None:
    """Make a policy's head its embedding."""
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    tensors = load_file(folder / WEIGHTS)
    del tensors["lm_head.weight"]
    save_file(tensors, folder / WEIGHTS)


@pytest_asyncio.fixture(
    scope="module", loop_scope="module", params=[("files", False), ("stream", True)], ids=["files", "stream"]
)
async def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Served]:
    transfer, tied = request.param
    root = tmp_path_factory.mktemp("vllm")
    first, second = (
        write_untied(root / f"policy-{seed}", seed=seed, width=128, inner=256, layers=2, heads=2)
        for seed in (0, 1)
    )
    for folder in (first, second) if tied else ():
        tie_head(folder)
    folders = VersionFolders(root / "versions", first, WholeModelLayout())
    with folders.reserve_version(1, "f" * 64, second / WEIGHTS) as laid_out:
        given = [first, laid_out]
    settings = VllmSettings(transfer=transfer)
    port = free_ports(1)[0]
    command, environment = own_server(SETTINGS, first, port=port)
    address = f"http://{HOST}:{port}"
    async with (
        running(command, environment, output=root / "output.log") as process,
        VllmServer(address) as server,
    ):
        await process.wait_until_healthy(server, timeout_s=600)
        assert await server.label(timeout_s=60) == "default"
        delivery = WholeWeightDelivery(RUN, settings, tied=tied)
        await delivery.give(server, VersionSource(0, lambda: nullcontext(first)))

        async def tell(fact: PolicyServerTroubled) -> None:
            found.troubles.append(fact)
            found.troubled.set()

        engine = VllmEngine(
            first,
            lambda: (address,),
            weights=WholeWeights(RUN),
            settings=settings,
            answer_timeout_s=300,
            tell=tell,
        )
        found = Served(server, delivery, engine, given)
        async with engine:
            yield found


def prompts(count: int, *, seed: int) -> list[list[int]]:
    random = Random(seed)
    return [[random.randrange(50, 2000) for _ in range(random.randrange(3, 300))] for _ in range(count)]


@pytest.mark.parametrize("temperature", [1.0, 0.0, 1.4])
async def test_log_probabilities_are_those_that_our_own_model_computes(
    served: Served, temperature: float
) -> None:
    version = served.engine.version
    answers = await served.ask(prompts(8, seed=1), temperature=temperature, tokens=24)
    differences = served.differences([given for given, _ in answers], version)
    largest = max(map(max, differences))
    print(
        f"temperature {temperature}: largest difference {largest:.1e} of {sum(map(len, differences))} tokens"
    )
    assert largest < AGREES
    assert {version} == {one for _, answer in answers for one in answer.versions}
    other = served.differences([given for given, _ in answers], version + 1)
    assert max(map(max, other)) > 1.0, "weights of another version would be noticed"


async def test_the_same_seed_gives_the_same_answer(served: Served) -> None:
    once = await served.ask(prompts(1, seed=2), temperature=1.0, tokens=24)
    again = await served.ask(prompts(1, seed=2), temperature=1.0, tokens=24)
    assert once[0][1].token_ids == again[0][1].token_ids


async def test_constrained_answers_have_their_form_and_recorded_sets_give_their_log_probabilities(
    served: Served,
) -> None:
    forms = (
        ('do(action="Click", element="', FreeText.QUOTED, '")'),
        ('exit(message="', FreeText.QUOTED, '")'),
    )
    answers = await served.ask(prompts(3, seed=3), temperature=1.0, tokens=30, constraint=forms)
    for _, answer in answers:
        text = served.engine.tokenizer.decode(answer.token_ids, skip_special_tokens=True)
        assert text.startswith(('do(action="Click", element="', 'exit(message="'))
        assert text.endswith('")')
        assert answer.finish == "stop"
    differences = served.differences([given for given, _ in answers], served.engine.version)
    assert max(map(max, differences)) < AGREES


async def test_weights_that_change_under_way_show_in_tokens_and_versions(served: Served) -> None:
    before = served.engine.version
    already = await served.sampled()
    asking = asyncio.create_task(served.ask(prompts(16, seed=4), temperature=1.0, tokens=600))
    while await served.sampled() < already + UNDER_WAY and not asking.done():  # noqa: ASYNC110 - servers tell nobody
        await asyncio.sleep(0.05)
    with capture_logs() as logged:
        await served.give(before + 1)
    assert not [line for line in logged if "did not take streamed weights" in line["event"]]
    answers = await asking
    assert served.engine.version == before + 1
    versions = [version for _, answer in answers for version in answer.versions]
    assert set(versions) == {before, before + 1}
    given = [given for given, _ in answers]
    for version in (before, before + 1):
        own = [
            difference
            for (_, answer), row in zip(answers, served.differences(given, version), strict=True)
            for difference, sampled_from in zip(row, answer.versions, strict=True)
            if sampled_from == version
        ]
        print(f"version {version}: largest difference {max(own):.1e} of {len(own)} tokens")
        assert max(own) < AGREES
    assert not served.troubles
