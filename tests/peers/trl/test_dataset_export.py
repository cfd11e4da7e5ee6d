"""A dataset of episodes, read by the real `datasets` and trained on by the real TRL."""

from pathlib import Path

import datasets
import pytest
import trl

from stories.export_story import HOSTILE, export_archive

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_archive(tmp_path_factory.mktemp("dataset"), "dataset", "--option", "evaluations=true")


def test_datasets_reads_both_splits_with_the_features_of_the_card(exported: Path, tmp_path: Path) -> None:
    found = datasets.load_dataset(str(exported), cache_dir=str(tmp_path))
    builder = datasets.load_dataset_builder(str(exported), cache_dir=str(tmp_path))
    assert set(found) == {"train", "test"}
    assert {name: split.num_examples for name, split in builder.info.splits.items()} == {
        name: split.num_rows for name, split in found.items()
    }
    text = datasets.Value("string")
    assert found["train"].features == builder.info.features
    assert found["train"].features["messages"] == datasets.List({"role": text, "content": text})


def test_its_messages_are_a_chat_that_trl_masks_and_trains_on(exported: Path, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    from hindcast.core.models.folders import policy_folder
    from hindcast.core.models.tokenizer import load_tokenizer

    rows = datasets.load_dataset(str(exported), cache_dir=str(tmp_path / "cache"), split="train")
    first = rows[0]["messages"]
    assert [one["role"] for one in first[:2]] == ["user", "assistant"]
    assert first[0]["content"].startswith(f"{HOSTILE}\n\n")
    assert rows[0]["steps"][0]["page"] in first[0]["content"]
    folder = policy_folder("base")
    trainer = trl.SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
        args=trl.SFTConfig(
            output_dir=str(tmp_path / "out"),
            max_steps=1,
            per_device_train_batch_size=1,
            max_length=512,
            report_to=[],
            use_cpu=True,
            bf16=False,
            save_strategy="no",
        ),
        train_dataset=rows.select_columns(["messages"]),
        processing_class=load_tokenizer(folder),
    )
    assert trainer.train().training_loss > 0
