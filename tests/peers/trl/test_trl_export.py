"""An export read by the real `datasets`, and trained on by the real TRL, with the shipped policy."""

import json
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
import trl
from transformers import AutoModelForCausalLM

from hindcast.core.models.folders import policy_folder
from hindcast.core.models.tokenizer import load_tokenizer
from stories.export_story import export_archive

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_archive(tmp_path_factory.mktemp("trl"), "trl")


def loaded(folder: Path, name: str) -> Any:
    return datasets.load_dataset("json", data_files=str(folder / f"{name}.jsonl"), split="train")


def settings(tmp_path: Path) -> dict[str, Any]:
    return {
        "output_dir": str(tmp_path),
        "max_steps": 1,
        "per_device_train_batch_size": 2,
        "report_to": [],
        "use_cpu": True,
        "bf16": False,
        "save_strategy": "no",
        "learning_rate": 1e-3,
    }


def policy() -> tuple[Any, Any]:
    folder = policy_folder("base")
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), load_tokenizer(folder)


def weights(model: Any) -> torch.Tensor:
    return torch.cat([one.detach().flatten().clone() for one in model.parameters()])


def test_datasets_reads_every_file(exported: Path) -> None:
    assert {"prompt", "completion", "logprobs", "advantage", "group"} <= set(
        loaded(exported, "steps").column_names
    )
    messages = loaded(exported, "chats")[0]["messages"]
    assert [one["role"] for one in messages[:2]] == ["user", "assistant"]


def test_a_supervised_step_of_trl_trains_on_the_sampled_tokens(exported: Path, tmp_path: Path) -> None:
    """As docs/exports.md says: the recorded tokens, and a loss on those that were sampled."""
    model, tokenizer = policy()
    before = weights(model)
    steps = loaded(exported, "steps").map(
        lambda row: {
            "input_ids": row["prompt_ids"] + row["completion_ids"],
            "labels": [-100] * len(row["prompt_ids"]) + row["completion_ids"],
        }
    )
    trainer = trl.SFTTrainer(
        model=model,
        args=trl.SFTConfig(**settings(tmp_path), max_length=2048),
        train_dataset=steps.select_columns(["input_ids", "labels"]),
        processing_class=tokenizer,
    )
    row = trainer.train_dataset[0]
    assert [one for one in row["labels"] if one != -100] == steps[0]["completion_ids"]
    trainer.train()
    assert not torch.equal(before, weights(model))


def test_trl_tokenizes_a_prompt_and_its_completion_to_the_tokens_that_were_sampled(tmp_path: Path) -> None:
    model, tokenizer = policy()
    text = {"prompt": "<|user|>Click on OK<|end|><|assistant|>", "completion": "exit()<|end|>"}
    (tmp_path / "steps.jsonl").write_text(json.dumps(text) + "\n")
    trainer = trl.SFTTrainer(
        model=model,
        args=trl.SFTConfig(**settings(tmp_path)),
        train_dataset=loaded(tmp_path, "steps"),
        processing_class=tokenizer,
    )
    row = trainer.train_dataset[0]
    expected = [tokenizer(text[part], add_special_tokens=False)["input_ids"] for part in text]
    assert row["input_ids"][: sum(map(len, expected))] == [*expected[0], *expected[1]]
    assert [one for one in row["labels"] if one != -100][: len(expected[1])] == expected[1]


def test_a_preference_step_of_trl_trains_on_exported_pairs(exported: Path, tmp_path: Path) -> None:
    model, tokenizer = policy()
    before = weights(model)
    pairs = loaded(exported, "pairs").select_columns(["prompt", "chosen", "rejected"])
    assert len(pairs) >= 2
    trainer = trl.DPOTrainer(
        model=model,
        args=trl.DPOConfig(**settings(tmp_path)),
        train_dataset=pairs,
        processing_class=tokenizer,
    )
    trainer.train()
    assert not torch.equal(before, weights(model))
