"""A policy of the base policy's kind, small and random: real files, real model, a few milliseconds to run."""

import json
from pathlib import Path
from shutil import copyfile

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from hindcast.core.models.folders import base_policy_folder
from hindcast.core.models.policy import WEIGHTS, save_weights

SMALL = {
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "num_hidden_layers": 4,
    "layer_types": ["conv", "full_attention", "conv", "full_attention"],
}
LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 36,
    "intermediate_size": 50,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "num_hidden_layers": 2,
    "vocab_size": 2047,
}
"""A model that can keep samples in one row apart, with sizes that no number of ranks from 2 to 4 divides throughout."""


def write_tiny_policy(folder: Path, *, seed: int = 1, llama: bool = False) -> Path:
    """The folder of a policy whose weights depend on the seed alone. `llama`: of that kind instead of the base policy's."""
    folder.mkdir(parents=True, exist_ok=True)
    base = base_policy_folder()
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        copyfile(base / name, folder / name)
    config = LLAMA if llama else json.loads((base / "config.json").read_text()) | SMALL
    (folder / "config.json").write_text(json.dumps(config))
    save_weights(tiny_model(folder, seed=seed), folder / WEIGHTS)
    return folder


def tiny_model(folder: Path, *, seed: int) -> torch.nn.Module:
    """A model of the folder's shape with weights large enough that its answers are far from uniform."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model: torch.nn.Module = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
        with torch.no_grad():
            for value in model.parameters():
                if value.ndim > 1:
                    value.normal_(std=0.15)
    return model
