"""An exported policy version is what was trained, to programs that know nothing of Hindcast."""

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from bench.untied import write_untied
from fakes.tiny_policy import tiny_model, write_tiny_policy
from hindcast.actors.engines.in_process import InProcessEngine
from hindcast.app.cli import app
from hindcast.app.exports.output_folder import ExportRefused
from hindcast.app.exports.policy_folder import (
    PolicyVersion,
    choose_version,
    find_version,
    write_policy_folder,
)
from hindcast.app.runs.archive_source import ArchiveSource
from hindcast.app.settings.configuration import resolve
from hindcast.core.domain.sampling import Sampling
from hindcast.core.errors import ModelFileError
from hindcast.core.models.adapter import add_adapter, encode_adapter, initialize_adapter
from hindcast.core.models.folders import base_policy_folder
from hindcast.core.models.policy import load_policy, save_weights
from hindcast.core.settings.schema import PolicySettings
from hindcast.events.catalogue import EvaluationFinished
from hindcast.events.catalogue.evaluation import EvaluationResult

pytestmark = pytest.mark.torch

RUN = Path(__file__).parents[1] / "golden/runs/grpo-1"
PROMPT = list(range(30, 70))
ANSWER = 24
OUTSIDE = """
import json, sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, adapter, prompt, count = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[4])
model = AutoModelForCausalLM.from_pretrained(folder)
AutoTokenizer.from_pretrained(adapter or folder).apply_chat_template([{"role": "user", "content": "hello"}])
if adapter:
    from peft import PeftModel
    model = PeftModel.from_pretrained(model, adapter)
assert not any(name.startswith("hindcast") for name in sys.modules)
ids = torch.tensor([prompt])
with torch.no_grad():
    logits = model(ids).logits[0, -1].tolist()
given = model.generate(ids, max_new_tokens=count, do_sample=False, temperature=None, top_p=None, top_k=None)
print(json.dumps([logits, given[0, len(prompt):].tolist(), str(model.dtype)]))
"""


def outside(folder: Path, *, adapter: Path | str = "") -> tuple[list[float], list[int], str]:
    """Last logits, greedy answer and precision in a process that has transformers and peft alone."""
    arguments = [str(folder), str(adapter), json.dumps(PROMPT), str(ANSWER)]
    done = subprocess.run(
        [sys.executable, "-P", "-c", OUTSIDE, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    logits, answer, precision = json.loads(done.stdout.splitlines()[-1])
    return logits, answer, precision


async def sampled(base: Path, weights: Path) -> list[int]:
    """What an actor samples greedily from the published file."""
    async with InProcessEngine(base, PolicySettings(threads=1)) as engine:
        await engine.adopt(1, weights)
        answer = await engine.generate(PROMPT, Sampling(temperature=0.0, max_tokens=ANSWER, seed=1))
        return list(answer.token_ids)


def version_of(base: Path, weights: Path, **others: object) -> PolicyVersion:
    found = {
        "run": "run-1",
        "recipe": "mgrpo",
        "version": 3,
        "update": 12,
        "position": 812,
        "log_digest": "5f" * 32,
        "sha256": "ab" * 32,
        "weights": weights,
        "base_weights": None,
        "settings": resolve(recipe="mgrpo", overrides=[f"policy.base={base}"]).settings,
        "evaluation": None,
        "code_rev": "1234567",
    }
    return PolicyVersion(**(found | others))  # type: ignore[arg-type]


@pytest.fixture
def trained(tmp_path: Path) -> PolicyVersion:
    """A version of a tied policy whose weights are not its base's."""
    base = write_tiny_policy(tmp_path / "base")
    save_weights(tiny_model(base, seed=2), tmp_path / "weights.safetensors")
    return version_of(base, tmp_path / "weights.safetensors")


@pytest.fixture
def adapted(tmp_path: Path) -> PolicyVersion:
    """A version of an untied policy that was trained as an adapter."""
    base = write_untied(tmp_path / "untied", seed=1, width=48, inner=64, layers=2, heads=2)
    model = load_policy(base).model
    add_adapter(model, rank=4, alpha=8, targets=["q_proj", "down_proj"])
    initialize_adapter(model, seed=1)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if ".lora_B." in name:
                value.normal_(std=0.2, generator=torch.Generator().manual_seed(len(name)))
    (tmp_path / "adapter").write_bytes(encode_adapter(model))
    return version_of(base, tmp_path / "adapter", base_weights=base / "model.safetensors")


async def test_plain_transformers_samples_the_tokens_that_actors_sample(
    trained: PolicyVersion, tmp_path: Path
) -> None:
    write_policy_folder(trained, tmp_path / "out")
    base = Path(trained.settings.policy.base)
    ours = await sampled(base, trained.weights)
    _, theirs, precision = outside(tmp_path / "out")
    assert theirs == ours != await sampled(base, base / "model.safetensors")
    assert precision == "torch.float32"


async def test_an_exported_folder_is_a_base(trained: PolicyVersion, tmp_path: Path) -> None:
    write_policy_folder(trained, tmp_path / "out")
    ours = await sampled(Path(trained.settings.policy.base), trained.weights)
    assert await sampled(tmp_path / "out", tmp_path / "out" / "model.safetensors") == ours


def test_an_adapter_is_to_peft_what_it_is_merged(adapted: PolicyVersion, tmp_path: Path) -> None:
    base = Path(adapted.settings.policy.base)
    write_policy_folder(adapted, tmp_path / "adapter-folder")
    write_policy_folder(adapted, tmp_path / "merged", merge=True)
    apart, answer, _ = outside(base, adapter=tmp_path / "adapter-folder")
    merged, same_answer, _ = outside(tmp_path / "merged")
    untrained, *_ = outside(base)
    assert np.abs(np.subtract(apart, merged)).max() < 1e-5
    assert answer == same_answer
    assert np.abs(np.subtract(apart, untrained)).max() > 0.1
    config = json.loads((tmp_path / "adapter-folder" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(base)


def test_weights_are_rounded_on_request(trained: PolicyVersion, tmp_path: Path) -> None:
    write_policy_folder(trained, tmp_path / "whole")
    write_policy_folder(trained, tmp_path / "half", precision="bf16")
    whole, half = ((tmp_path / name / "model.safetensors").stat().st_size for name in ("whole", "half"))
    assert half < 0.6 * whole
    assert outside(tmp_path / "half")[2] == "torch.bfloat16"


def test_the_folder_says_how_the_run_sampled(trained: PolicyVersion, tmp_path: Path) -> None:
    write_policy_folder(trained, tmp_path / "out")
    said = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert (said["do_sample"], said["temperature"], said["top_p"], said["top_k"]) == (True, 1.0, 1.0, 0)
    assert said["eos_token_id"] == [*load_policy(Path(trained.settings.policy.base)).stops]


def test_the_model_card_leads_back_to_the_run(trained: PolicyVersion, tmp_path: Path) -> None:
    results = (
        EvaluationResult(temperature=0.0, family="store/buy", successes=7, failures=2, lost=0, reward=7.0),
    )
    evaluation = EvaluationFinished(
        number=1, version=3, version_low=3, version_high=3, results=results, seconds=9.0, share=0.1
    )
    found = PolicyVersion(
        **{name: getattr(trained, name) for name in trained.__struct_fields__} | {"evaluation": evaluation}
    )
    write_policy_folder(found, tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"hindcast audit run-1 --expect 812:{'5f' * 32}" in card
    assert "| store/buy | greedy | 7 of 9 | 0 |" in card
    assert "evaluation of policy 3 · greedy 78%" in card


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_what_does_not_apply_is_refused_and_writes_nothing(
    trained: PolicyVersion, adapted: PolicyVersion, tmp_path: Path, precision: str
) -> None:
    with pytest.raises(ExportRefused, match="nothing to merge"):
        write_policy_folder(trained, tmp_path / "out", merge=True, precision=precision)  # type: ignore[arg-type]
    with pytest.raises(ModelFileError, match="there is no model folder"):
        write_policy_folder(trained, tmp_path / "out", base=tmp_path / "gone")
    if precision == "bf16":
        with pytest.raises(ExportRefused, match="--dtype needs --merge"):
            write_policy_folder(adapted, tmp_path / "out", precision="bf16")
    assert not (tmp_path / "out").exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    with pytest.raises(ExportRefused, match="not empty"):
        write_policy_folder(trained, tmp_path / "full")
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine.txt"]


def evaluated(successes: int, failures: int, lost: int = 0) -> EvaluationFinished:
    result = EvaluationResult(
        temperature=1.0,
        family="store/buy",
        successes=successes,
        failures=failures,
        lost=lost,
        reward=float(successes),
    )
    return EvaluationFinished(
        number=1, version=1, version_low=1, version_high=1, results=(result,), seconds=1.0, share=0.1
    )


def test_the_best_is_the_earliest_of_the_highest_success_among_those_kept() -> None:
    evaluations = {
        1: evaluated(9, 1), 2: evaluated(3, 0, lost=7), 3: evaluated(8, 2), 4: evaluated(4, 6), 5: evaluated(8, 2)
    }  # fmt: skip
    version, why = choose_version("best", "run-1", [0, 1, 2, 3, 4, 5], [0, 2, 3, 4, 5], evaluations)
    assert version == 3, "1 is released, and a task without a verdict is no success of 2"
    assert "4 evaluated versions" in why


def test_a_released_version_is_refused_with_those_that_are_kept() -> None:
    with pytest.raises(ExportRefused, match="version 1 of run run-1 were released; kept are 0, 2"):
        choose_version("1", "run-1", [0, 1, 2], [0, 2], {})
    with pytest.raises(ExportRefused, match="whose weights are kept"):
        choose_version("last", "run-1", [0, 1], [], {})
    assert choose_version("0", "run-1", [0, 1, 2], [0, 2], {}) == (0, "")
    assert choose_version("last", "run-1", [0, 1, 2], [0, 2], {}) == (2, "")


class TestOfARecordedRun:
    """Versions are found in the log of a run that an earlier Hindcast recorded."""

    async def test_by_number_and_the_last(self) -> None:
        source = ArchiveSource(RUN)
        last = await find_version(source, "last")
        assert await find_version(source, str(last.version)) == last
        assert (last.recipe, last.version > 1, len(last.log_digest)) == ("test", True, 64)

    @pytest.mark.parametrize(
        ("wanted", "words"),
        [("99", "no policy version '99'"), ("newest", "`last` or `best`"), ("best", "evaluated no")],
    )
    async def test_an_unknown_one_is_refused_with_what_to_do(self, wanted: str, words: str) -> None:
        with pytest.raises(ExportRefused, match=words):
            await find_version(ArchiveSource(RUN), wanted)

    def test_the_command_exports_from_an_archive_with_its_base_at_hand(self, tmp_path: Path) -> None:
        base = tmp_path / "base"
        base.mkdir()
        for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
            shutil.copyfile(base_policy_folder() / name, base / name)
        shutil.copyfile(RUN.with_suffix(".policy.json"), base / "config.json")
        found = asyncio.run(find_version(ArchiveSource(RUN), "last"))
        shutil.copyfile(found.weights, base / "model.safetensors")
        command = [
            "policy",
            "export",
            "last",
            str(RUN),
            "--to",
            str(tmp_path / "out"),
            "--base",
            str(base),
            "--json",
        ]
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["version"] == found.version
        assert outside(tmp_path / "out")[1] == asyncio.run(sampled(base, found.weights))
