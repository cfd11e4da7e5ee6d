"""Adapter files: peft's `adapter_model.safetensors` with its `adapter_config.json` in the file's metadata.

So one blob holds a whole adapter. This module reads it without torch.
"""

import json
from pathlib import Path
from shutil import copyfile
from typing import Any

from safetensors import SafetensorError, safe_open

from hindcast.core.errors import ModelFileError
from hindcast.core.text.plain_values import parse_json

CONFIG = "adapter_config"
"""The one key of an adapter file's metadata."""
WEIGHTS_NAME = "adapter_model.safetensors"
CONFIG_NAME = "adapter_config.json"
"""The two files of the folder that `peft` and vLLM load."""


def adapter_config(path: Path) -> dict[str, Any] | None:
    """Read peft's configuration of an adapter file; None if the file holds whole weights. Raises ModelFileError."""
    try:
        with safe_open(path, framework="np") as file:
            text = (file.metadata() or {}).get(CONFIG)
    except SafetensorError as error:
        raise ModelFileError(f"{path} is no safetensors file: {error}") from error
    if text is None:
        return None
    try:
        config: dict[str, Any] = parse_json(text)
        if float(config["lora_alpha"]) < 0 or int(config["r"]) < 1:
            raise ValueError(f"lora_alpha = {config['lora_alpha']}, r = {config['r']}")
    except (ValueError, KeyError, TypeError) as error:
        raise ModelFileError(f"{path} holds an adapter without a readable configuration: {error}") from error
    return config


def config_text(path: Path) -> str:
    """Return the `adapter_config.json` of an adapter file. Raises ModelFileError for any other file."""
    config = adapter_config(path)
    if config is None:
        raise ModelFileError(f"{path} holds whole weights, not an adapter: learner.lora_rank was 0")
    return json.dumps(config, indent=2, sort_keys=True)


def write_adapter_folder(path: Path, folder: Path) -> None:
    """Write an adapter file as the folder that `peft` and vLLM load.

    Raises:
        ModelFileError: the file is not an adapter file.
    """
    config = config_text(path)
    folder.mkdir(parents=True, exist_ok=True)
    copyfile(path, folder / WEIGHTS_NAME)
    (folder / CONFIG_NAME).write_text(config)
