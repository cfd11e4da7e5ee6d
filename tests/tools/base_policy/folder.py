"""The folder that training writes and that the policy is loaded from: an ordinary Hugging Face model folder."""

from pathlib import Path
from shutil import copyfile
from typing import Any

import torch
from safetensors.torch import save
from transformers import AutoConfig, GenerationConfig, Lfm2ForCausalLM, PreTrainedTokenizerFast

from hindcast.core.models.policy import WEIGHTS, load_weights, save_weights, weights_of
from tools.base_policy.architecture import configuration, new_model
from tools.base_policy.tokenizer import MAX_TOKENS, save_tokenizer

SHIPPED = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")


def create(folder: Path, tokenizer: PreTrainedTokenizerFast, *, seed: int) -> None:
    """A folder with this tokenizer and fresh weights."""
    folder.mkdir(parents=True, exist_ok=True)
    save_tokenizer(tokenizer, folder)
    config = configuration(
        vocabulary=len(tokenizer),
        pad=int(tokenizer.pad_token_id),
        end=int(tokenizer.eos_token_id),
        max_tokens=MAX_TOKENS,
    )
    config.architectures = ["Lfm2ForCausalLM"]
    config.save_pretrained(folder)
    generation = GenerationConfig(
        eos_token_id=int(tokenizer.eos_token_id), pad_token_id=int(tokenizer.pad_token_id), do_sample=True,
        temperature=1.0, top_k=0, top_p=1.0,
    )  # fmt: skip
    generation.save_pretrained(folder)
    save_model(new_model(config, seed=seed), folder)


def load_model(folder: Path) -> Any:
    """The folder's model, float32."""
    model = Lfm2ForCausalLM(AutoConfig.from_pretrained(folder))
    load_weights(model, folder / WEIGHTS)
    return model.float()


def save_model(model: Any, folder: Path) -> None:
    """Write the weights, the tied head left out; a reader sees the old file or the new one."""
    save_weights(model, folder / WEIGHTS)


def export(folder: Path, target: Path) -> None:
    """Copy a trained folder for shipping, weights rounded to bfloat16: half the size, and loading gives them exactly."""
    target.mkdir(parents=True, exist_ok=True)
    for name in SHIPPED:
        copyfile(folder / name, target / name)
    rounded = {
        name: value.to(torch.bfloat16).contiguous() for name, value in weights_of(load_model(folder)).items()
    }
    (target / WEIGHTS).write_bytes(save(rounded, {"format": "pt"}))
