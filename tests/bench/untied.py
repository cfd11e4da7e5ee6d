"""A policy of random weights that both engines compute alike: a Llama with a head of its own.

vLLM's build for CPUs computes the shipped policy (LFM2) otherwise than transformers, and keeps the old head of a model that
shares it with its embedding (docs/vllm.md); what is asked of both engines needs a model that neither is wrong about.
"""

import json
from pathlib import Path
from shutil import copyfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from hindcast.core.models.folders import base_policy_folder
from hindcast.core.models.policy import WEIGHTS, save_weights


def write_untied(
    folder: Path,
    *,
    seed: int,
    width: int = 192,
    inner: int = 384,
    layers: int = 6,
    heads: int = 6,
    spread: float = 0.2,
    dtype: torch.dtype = torch.float32,
) -> Path:
    """The folder of such a policy, with the shipped tokenizer and, unless told otherwise, the shipped policy's sizes.

    `spread`: standard deviation of its weights, drawn from `seed`. At 0.2 answers are far from uniform, at 0.02 nearly so. `dtype`: number
    format of the file.
    """
    folder.mkdir(parents=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        copyfile(base_policy_folder() / name, folder / name)
    shipped = json.loads((base_policy_folder() / "config.json").read_text())
    config = LlamaConfig(
        vocab_size=shipped["vocab_size"],
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=shipped["max_position_embeddings"],
        bos_token_id=shipped["bos_token_id"],
        eos_token_id=shipped["eos_token_id"],
        pad_token_id=shipped["pad_token_id"],
        tie_word_embeddings=False,
        initializer_range=spread,
        dtype=dtype,
        architectures=["LlamaForCausalLM"],
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config).eval().to(dtype)
    config.save_pretrained(folder)
    save_weights(model, folder / WEIGHTS)
    return folder
