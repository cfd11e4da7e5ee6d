"""Models checked in their folders: what is said of sound ones, and of each way in which one cannot be a policy."""

import json
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM
from typer.testing import CliRunner

from fakes.model_families import FAMILIES
from hindcast.actors.engines.round_trip import RoundTripPrompt, round_trip
from hindcast.app.cli import app
from hindcast.app.runs.selection import select_run
from hindcast.app.settings.configuration import resolve
from hindcast.app.system.model_check import check_model, require_model
from hindcast.core.errors import SettingsError
from hindcast.core.models.folder_check import CheckFinding, cache_bytes
from hindcast.core.models.policy import load_policy
from hindcast.core.settings.schema import Settings

pytestmark = pytest.mark.torch


def _settings(*overrides: str) -> Settings:
    return resolve(overrides=overrides, environment={}).settings


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_a_sound_model_is_said_to_be_one_part_by_part(model_families: dict[str, Path], name: str) -> None:
    found = {finding.part: finding for finding in check_model(model_families[name], _settings())}
    assert list(found) == [
        "files", "model", "tokenizer", "template", "ends", "context", "pages", "answers", "memory", "use",
    ]  # fmt: skip
    assert {finding.verdict for finding in found.values()} <= {"ok", "note"}
    assert all(end in found["ends"].result for end in FAMILIES[name].stops)
    assert "sampling and scoring differ by" in found["use"].result


def test_a_model_that_is_sampled_elsewhere_is_not_tried_in_this_process(
    model_families: dict[str, Path],
) -> None:
    *_, last = check_model(model_families["qwen2"], _settings("policy.engine=vllm"))
    assert (last.part, last.verdict) == ("use", "note")
    assert "vllm" in last.result


def test_what_caches_take_is_counted_by_hand(model_families: dict[str, Path]) -> None:
    config = load_policy(model_families["qwen3"]).model.config
    # both, layers, heads, width, tokens, float32
    assert cache_bytes(config, tokens=10) == 2 * 2 * 2 * 16 * 10 * 4


def _drop(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def _edit(name: str, **changes: Any) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        content = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(content | changes))

    return edit


def _pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def _slow(folder: Path) -> None:
    (folder / "tokenizer.json").rename(folder / "tokenizer.model")


def _bare(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text(
        "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    )


def _twice(folder: Path) -> None:
    template = folder / "chat_template.jinja"
    template.write_text("{{ bos_token }}" + template.read_text())


def _other_weights(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"] = torch.ones(5)
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("family", "damage", "overrides", "part", "said"),
    [
        ("qwen2", _drop("config.json"), (), "files", "lacks config.json"),
        ("qwen2", _drop("model.safetensors"), (), "files", "no weights"),
        ("qwen3", _drop("model-00002-of-00004.safetensors"), (), "files", "model-00002-of-00004"),
        ("qwen2", _pickled, (), "files", "pickle"),
        ("qwen2", _slow, (), "files", "slow form"),
        ("qwen2", _edit("config.json", model_type="own", auto_map={"AutoConfig": "own.Config"}), (), "files", "never run"),
        ("qwen2", _edit("config.json", quantization_config={"quant_method": "gptq"}), (), "files", "gptq"),
        ("qwen2", _edit("config.json", vision_config={}), (), "model", "pictures"),
        ("qwen2", _edit("config.json", intermediate_size=64), (), "model", "has shape"),
        ("llama3", _other_weights, (), "model", r"model\.norm\.weight has shape \[5\]"),
        ("qwen2", _drop("chat_template.jinja"), (), "tokenizer", "chat template"),
        ("llama3", _bare, (), "template", "actors.framing"),
        ("llama3", _twice, (), "template", "twice"),
        ("qwen2", lambda _: None, ("actors.framing=webrl/1", "actors.renderer=webrl/2"), "template", "eot_id"),
        ("qwen2", lambda _: None, ("actors.max_prompt_tokens=2000",), "context", "2064 tokens.*2048 positions"),
        ("qwen2", lambda folder: (folder / "generation_config.json").write_text("{"), (), "ends", "generation_config"),
    ],
)  # fmt: skip
def test_what_keeps_a_model_from_being_a_policy_is_said_with_what_to_do(
    model_families: dict[str, Path],
    tmp_path: Path,
    family: str,
    damage: Callable[[Path], None],
    overrides: tuple[str, ...],
    part: str,
    said: str,
) -> None:
    folder = copytree(model_families[family], tmp_path / "model")
    damage(folder)
    settings = _settings(f"policy.base={folder}", *overrides)
    (failed,) = [finding for finding in check_model(folder, settings) if finding.verdict == "failed"]
    assert failed.part == part
    with pytest.raises(SettingsError, match=said) as raised:
        require_model(settings)
    assert f"policy.base = '{folder}', {part}" in str(raised.value)


def _write(folder: Path, kind: str, **changes: Any) -> None:
    """Another architecture in the folder, with weights of its own and the same tokenizer."""
    size = json.loads((folder / "config.json").read_text())["vocab_size"]
    config = AutoConfig.for_model(kind, vocab_size=size, **changes)
    model = AutoModelForCausalLM.from_config(config)
    for name in ("config.json", "generation_config.json", "model.safetensors"):
        (folder / name).unlink()
    model.save_pretrained(folder)


@pytest.mark.parametrize(
    ("kind", "changes", "part", "said"),
    [
        ("mamba", {"hidden_size": 16, "num_hidden_layers": 1, "state_size": 4}, "model", "MambaForCausalLM has no attention"),
        ("bert", {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16,
                  "max_position_embeddings": 4096}, "use", ""),
    ],
    ids=["recurrent", "reads both ways"],
)  # fmt: skip
def test_an_architecture_that_cannot_be_sampled_here_is_told_in_words(
    model_families: dict[str, Path], tmp_path: Path, kind: str, changes: dict[str, Any], part: str, said: str
) -> None:
    folder = copytree(model_families["llama3"], tmp_path / "model")
    _write(folder, kind, **changes)
    (failed,) = [one for one in check_model(folder, _settings()) if one.verdict == "failed"]
    assert (failed.part, said in failed.result) == (part, True)


def test_a_model_whose_logits_change_after_its_head_is_found_by_using_it(
    model_families: dict[str, Path],
) -> None:
    policy = load_policy(model_families["qwen2"])
    assert round_trip(policy, [RoundTripPrompt([5, 6, 7])]).agrees
    computed = policy.model.forward

    def capped(*given: Any, **named: Any) -> Any:
        output = computed(*given, **named)
        output.logits = 2.0 * torch.tanh(output.logits / 2.0)
        return output

    policy.model.forward = capped
    tried = round_trip(policy, [RoundTripPrompt([5, 6, 7]), RoundTripPrompt([8, 9])])
    assert not tried.agrees
    assert tried.answers == 4


def test_a_new_run_from_a_folder_begins_with_the_check_and_leaves_nothing_when_it_fails(
    model_families: dict[str, Path], tmp_path: Path
) -> None:
    folder = copytree(model_families["qwen2"], tmp_path / "model")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    home = tmp_path / "home"
    with pytest.raises(SettingsError, match="pickle"):
        select_run(home, name="mine", overrides=[f"policy.base={folder}"])
    assert not home.exists()
    (folder / "pytorch_model.bin").rename(folder / "model.safetensors")
    handle = select_run(home, name="mine", overrides=[f"policy.base={folder}"])
    assert handle.settings.policy.base == str(folder)


def test_the_command_says_all_of_it_and_fails_where_something_failed(
    model_families: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = CliRunner().invoke(app, ["model", "check", str(model_families["qwen2"]), "--json"])
    assert shown.exit_code == 0, shown.output
    found = [CheckFinding(**one) for one in json.loads(shown.output)]
    assert found[-1].part == "use"
    refused = CliRunner().invoke(
        app, ["model", "check", str(model_families["qwen2"]), "--set", "actors.max_prompt_tokens=5000"]
    )
    assert refused.exit_code == 1
    assert "FAILED  context" in refused.output
    assert "Lower actors.max_prompt_tokens" in refused.output


def test_prompt_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(SettingsError, match="is not a renderer; the nearest is lines/1"):
        _settings("actors.renderer=lines/9")
    with pytest.raises(SettingsError, match=r"needs actors\.renderer = 'webrl/3'"):
        _settings("actors.framing=webrl/1")


def test_loading_a_policy_draws_nothing_at_random(model_families: dict[str, Path]) -> None:
    """Weights are read over whatever was there; and what is drawn elsewhere does not depend on what was loaded before."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        before = torch.get_rng_state()
        for name in sorted(FAMILIES):
            model = load_policy(model_families[name]).model
            assert all(value.isfinite().all() for value in model.state_dict().values())
        assert torch.equal(torch.get_rng_state(), before)
