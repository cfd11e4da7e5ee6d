"""The folder that training writes and that the policy is loaded from: an ordinary Hugging Face model folder."""

from pathlib import Path
from typing import Any

from transformers import AutoConfig, GenerationConfig, Lfm2ForCausalLM, PreTrainedTokenizerFast

from core.models.policy import WEIGHTS, load_weights, save_weights
from learner.base_policy.architecture import configuration, new_model
from learner.base_policy.tokenizer import MAX_TOKENS, save_tokenizer


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
