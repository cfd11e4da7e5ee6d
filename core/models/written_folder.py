"""Writes a policy's weights, configuration and generation settings as transformers' loaders expect them."""

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, GenerationConfig, PreTrainedTokenizerBase
from transformers.utils import logging

from hindcast.core.models.model_files import CONFIG, require_files, stop_tokens
from hindcast.core.models.policy import load_policy, load_weights
from hindcast.core.models.tokenizer import load_tokenizer
from hindcast.core.settings.computing import Precision

SHARD = "4GB"
"""Size limit of a weight file, in transformers' notation."""


def write_whole_weights(
    base: Path, weights: Sequence[Path], folder: Path, *, temperature: float, precision: Precision
) -> None:
    """Write the base's model with other weights into a folder that is there.

    `weights`: files that are loaded in this order; an adapter is merged. `temperature`: what its answers were sampled at, with
    nothing of the vocabulary left out. Takes 4 bytes of memory for each parameter, twice that while a file is read.

    Raises:
        ModelFileError: a file cannot be read, or base and weights do not belong together.
        OSError: the folder cannot be written.

    """
    policy = load_policy(base)
    for path in weights:
        load_weights(policy.model, path)
    policy.model.generation_config = _generation_settings(policy.stops, policy.tokenizer, temperature)
    logging.disable_progress_bar()
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    try:
        policy.model.to(dtype).save_pretrained(folder, max_shard_size=SHARD)
    except SafetensorError as error:
        raise OSError(str(error)) from error
    for path in folder.glob("*.safetensors"):  # which are private, unlike the other files
        path.chmod((folder / CONFIG).stat().st_mode)


def write_generation_settings(base: Path, folder: Path, *, temperature: float) -> None:
    """Write `generation_config.json` alone, as `write_whole_weights` does. Raises ModelFileError."""
    require_files(base)
    tokenizer = load_tokenizer(base)
    config = AutoConfig.from_pretrained(base, trust_remote_code=False, local_files_only=True)
    _generation_settings(stop_tokens(base, config, tokenizer), tokenizer, temperature).save_pretrained(folder)


def _generation_settings(
    stops: Sequence[int], tokenizer: PreTrainedTokenizerBase, temperature: float
) -> GenerationConfig:
    sampled = {"temperature": temperature, "top_p": 1.0, "top_k": 0} if temperature > 0 else {}
    return GenerationConfig(
        do_sample=temperature > 0, eos_token_id=list(stops), pad_token_id=tokenizer.pad_token_id, **sampled
    )
