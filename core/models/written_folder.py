"""Writes a policy's weights, configuration and generation settings as transformers' loaders expect them."""

from pathlib import Path

import torch
from transformers import GenerationConfig
from transformers.utils import logging

from hindcast.core.models.model_files import CONFIG
from hindcast.core.models.policy import load_policy, load_weights
from hindcast.core.settings.computing import Precision

SHARD = "4GB"
"""Size limit of a weight file, in transformers' notation."""


def write_whole_weights(
    base: Path, weights: Path, folder: Path, *, temperature: float, precision: Precision
) -> None:
    """Write the base's model with these weights, or with this adapter merged, into a folder that is there.

    `temperature`: what its answers were sampled at, with nothing of the vocabulary left out. Takes 4 bytes of memory for each
    parameter.

    Raises:
        ModelFileError: a file cannot be read, or base and weights do not belong together.

    """
    policy = load_policy(base)
    load_weights(policy.model, weights)
    sampled = {"temperature": temperature, "top_p": 1.0, "top_k": 0} if temperature > 0 else {}
    policy.model.generation_config = GenerationConfig(
        do_sample=temperature > 0,
        eos_token_id=list(policy.stops),
        pad_token_id=policy.tokenizer.pad_token_id,
        **sampled,
    )
    logging.disable_progress_bar()
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    policy.model.to(dtype).save_pretrained(folder, max_shard_size=SHARD)
    for path in folder.glob("*.safetensors"):  # which are private, unlike the other files
        path.chmod((folder / CONFIG).stat().st_mode)
