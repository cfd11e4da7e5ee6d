"""An exported folder, served by a vLLM server that knows nothing of Hindcast, samples what the version samples."""

from pathlib import Path

import httpx2
import pytest
import torch

from bench.untied import write_untied
from hindcast.actors.engines.vllm.server import VllmServer
from hindcast.actors.policy_servers.command import FOR_CPUS, HOST, server_environment, server_python
from hindcast.actors.policy_servers.server_process import running
from hindcast.app.exports.policy_folder import PolicyVersion, write_policy_folder
from hindcast.app.settings.configuration import resolve
from hindcast.app.system.policy_servers import free_ports
from hindcast.core.models.policy import WEIGHTS, load_policy, load_weights
from hindcast.core.settings.schema import Settings

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

PROMPT = list(range(60, 120))
ANSWER = 24
AGREES = 1e-5
"""Largest difference of a log-probability in float32. It grows with the logits: weights are drawn so that they stay below 10."""


async def test_a_plain_server_gives_the_log_probabilities_of_the_version(tmp_path: Path) -> None:
    base, trained = (
        write_untied(
            tmp_path / f"policy-{seed}", seed=seed, width=128, inner=256, layers=2, heads=2, spread=0.1
        )
        for seed in (0, 1)
    )
    version = PolicyVersion(
        run="run-1",
        recipe="mgrpo",
        version=1,
        update=4,
        position=9,
        log_digest="ab" * 32,
        sha256="cd" * 32,
        weights=trained / WEIGHTS,
        base_weights=None,
        settings=resolve(recipe="mgrpo", overrides=[f"policy.base={base}"]).settings,
        evaluation=None,
        code_rev="",
    )
    write_policy_folder(version, tmp_path / "agent")
    tokens, logprobs = await served(tmp_path / "agent", tmp_path / "output.log")
    policy = load_policy(base)
    before = computed(policy.model, tokens)
    load_weights(policy.model, version.weights)
    difference = (computed(policy.model, tokens) - logprobs).abs().max()
    print(f"largest difference {difference:.1e} of {len(tokens)} tokens")
    assert difference < AGREES
    assert (before - logprobs).abs().max() > 1.0, "the base's weights would be noticed"


async def served(folder: Path, output: Path) -> tuple[list[int], torch.Tensor]:
    """Tokens of an answer, sampled by the folder's own generation settings, and their log-probabilities."""
    port = free_ports(1)[0]
    command = [
        str(server_python(Settings())),
        *("-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), "--served-model-name", "agent"),
        *("--host", HOST, "--port", str(port), "--dtype", "float32", *FOR_CPUS),
    ]
    address = f"http://{HOST}:{port}"
    asked = {
        "model": "agent",
        "prompt": PROMPT,
        "max_tokens": ANSWER,
        "seed": 1,
        "logprobs": 0,
        "return_tokens_as_token_ids": True,
    }
    async with (
        running(command, server_environment(Settings()), output=output) as process,
        VllmServer(address) as server,
        httpx2.AsyncClient(timeout=300) as client,
    ):
        await process.wait_until_healthy(server, timeout_s=600)
        answer = (await client.post(f"{address}/v1/completions", json=asked)).json()["choices"][0]["logprobs"]
    tokens = [int(token.removeprefix("token_id:")) for token in answer["tokens"]]
    return tokens, torch.tensor(answer["token_logprobs"])


def computed(model: torch.nn.Module, answer: list[int]) -> torch.Tensor:
    """Log-probabilities of an answer at temperature 1."""
    with torch.no_grad():
        logits = model(torch.tensor([[*PROMPT, *answer]])).logits[0, len(PROMPT) - 1 : -1]
    found: torch.Tensor = logits.log_softmax(-1).gather(1, torch.tensor(answer)[:, None])[:, 0]
    return found
