"""A dataset of episodes, read by the dataset of verl's supervised trainer."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset

from hindcast.core.models.folders import policy_folder
from hindcast.core.models.tokenizer import load_tokenizer
from stories.export_story import export_archive

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]


def test_verl_puts_a_loss_on_the_answers_alone(tmp_path: Path) -> None:
    (file,) = (export_archive(tmp_path, "dataset") / "data").glob("train-*.parquet")
    tokenizer = load_tokenizer(policy_folder("base"))
    found = MultiTurnSFTDataset(str(file), tokenizer, {"max_length": 1 << 15, "pad_mode": "no_padding"})
    chats = pq.read_table(file, columns=["messages"]).column("messages").to_pylist()
    assert len(found) == len(chats) > 10
    for number in range(len(chats)):
        row = found[number]
        trained = tokenizer.decode(row["input_ids"][row["loss_mask"] == 1], skip_special_tokens=True)
        answers = "".join(one["content"] for one in chats[number] if one["role"] == "assistant")
        assert trained == answers, json.dumps(chats[number])[:500]
