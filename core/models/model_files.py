"""Files of a model folder: which are required, what configuration and generation settings say, and advice for each fault.

Only configuration, fast tokenizer and safetensors are read. Pickled weights and code in the folder are never executed: they
could do anything that this process can.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import CONFIG_MAPPING

from hindcast.core.bounded_read import read_file_bounded
from hindcast.core.errors import ModelFileError
from hindcast.core.models.folders import require_folder
from hindcast.core.prompts.chat_frame import end_of_answer
from hindcast.core.text.plain_values import parse_json

MOST_JSON_BYTES = 64 * 1024 * 1024
"""Size limit of a configuration or an index of weight files."""
CONFIG = "config.json"
TOKENIZER = "tokenizer.json"
WEIGHTS = "model.safetensors"
INDEX = f"{WEIGHTS}.index.json"
REQUIRED = (CONFIG, TOKENIZER, "tokenizer_config.json")
SLOW = ("tokenizer.model", "vocab.json", "spiece.model", "vocab.txt", "*.tiktoken")
"""Files of slow tokenizers."""
DERIVED = ("lm_head.weight", "rotary_emb.inv_freq")
"""Name suffixes of tensors that a file may have in excess of the model: a tied head, and buffers of old checkpoints."""
PICKLED = ("pytorch_model*.bin", "*.pt", "*.pth", "*.ckpt")


def require_files(folder: Path) -> None:
    """Raise ModelFileError for the first file that is missing or has an unsupported form."""
    require_folder(folder)
    _require_regular_files(folder)
    for name in REQUIRED:
        if (folder / name).is_file():
            continue
        slow = _first(folder, SLOW)
        if name == TOKENIZER and slow:
            raise ModelFileError(
                f"{folder} lacks {name}: it has its tokenizer in the slow form alone ({slow}). Convert it once, on a machine "
                'where it loads: python -c "from transformers import AutoTokenizer as A; '
                "A.from_pretrained('FOLDER', use_fast=True).save_pretrained('FOLDER')\""
            )
        raise ModelFileError(
            f"{folder} is no policy: it lacks {name}. Set policy.base to the folder of a Hugging Face causal "
            "model with config.json, tokenizer.json and safetensors weights, or to `base`."
        )
    pickled = _first(folder, PICKLED)
    if pickled and not (folder / WEIGHTS).is_file() and not (folder / INDEX).is_file():
        raise ModelFileError(
            f"{folder} has its weights in {pickled}, which is a pickle: loading it would run whatever it holds. Only "
            f"safetensors are read ({WEIGHTS}, or {INDEX} and its shards). Fetch that form of the model, or convert it where "
            "you trust it: python -c \"from transformers import AutoModelForCausalLM as A; A.from_pretrained('FOLDER')"
            ".save_pretrained('FOLDER')\""
        )
    _require_known_kind(folder)


def weight_files(folder: Path) -> list[Path]:
    """List the weight files: one, or the shards of the index.

    Raises ModelFileError for an index that is malformed or names a file outside the folder.
    """
    index = folder / INDEX
    if not index.is_file():
        return [folder / WEIGHTS]
    try:
        shards = sorted(set(parse_json(_text_of(index))["weight_map"].values()))
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise ModelFileError(f"{index} is no index of weight files: {error}") from error
    for shard in shards:
        if not isinstance(shard, str) or Path(shard).name != shard or "\0" in shard:
            raise ModelFileError(f"{index} names a weight file outside its folder: {shard}")
    return [folder / shard for shard in shards]


def misfits(model: Mapping[str, Sequence[int]], stored: Mapping[str, Sequence[int]]) -> list[str]:
    """List the differences between a model's tensors and stored ones; both are shapes by name."""
    problems = [f"{name} is missing" for name in model if name not in stored]
    problems += [
        f"{name} has shape {list(stored[name])}, the model {list(shape)}"
        for name, shape in model.items()
        if name in stored and list(stored[name]) != list(shape)
    ]
    extra = {name for name in set(stored) - set(model) if not name.endswith(DERIVED)}
    return [*problems, *(f"{name} is unknown to the model" for name in sorted(extra))]


def read_config_file(folder: Path) -> dict[str, Any]:
    """Read config.json. Raises ModelFileError."""
    path = folder / CONFIG
    try:
        content = parse_json(_text_of(path))
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{path} cannot be read: {error}. Fetch it again.") from error
    if not isinstance(content, dict):
        raise ModelFileError(f"{path} holds no object. Fetch it again.")
    return content


def _require_known_kind(folder: Path) -> None:
    config = read_config_file(folder)
    kind = config.get("model_type")
    if config.get("auto_map") and (not isinstance(kind, str) or kind not in CONFIG_MAPPING):
        raise ModelFileError(
            f"{folder / CONFIG}: model_type {kind!r} is code of the model's own (auto_map), and code in a model's folder is "
            "never run. Fetch the form of the model that transformers knows: of GLM-4, glm-4-9b-chat-hf (model_type glm)."
        )
    quantization = config.get("quantization_config")
    if quantization:
        method = quantization.get("quant_method", "unknown") if isinstance(quantization, dict) else "unknown"
        raise ModelFileError(
            f"{folder / CONFIG}: its weights are quantised ({method}), "
            "and a policy is trained in floating point. Use the model as it was before."
        )


def _require_regular_files(folder: Path) -> None:
    """Raise ModelFileError for a pipe or a device, on which a reader could block forever."""
    try:
        odd = [path for path in folder.iterdir() if path.exists() and not (path.is_file() or path.is_dir())]
    except OSError as error:
        raise ModelFileError(
            f"{folder} is no folder that can be read: {error.strerror}. Set policy.base to the folder of a Hugging Face causal "
            "model, or to `base`."
        ) from error
    if odd:
        raise ModelFileError(f"{odd[0]} is no regular file: a model's folder holds files alone. Remove it.")


def _text_of(path: Path) -> str:
    """Read a JSON file's text. Raises OSError, and ValueError if it is too long or not UTF-8."""
    return read_file_bounded(path, most_bytes=MOST_JSON_BYTES).decode()


def _first(folder: Path, patterns: tuple[str, ...]) -> str:
    """Return the name of the first file that matches a pattern; empty if there is none."""
    return next((path.name for pattern in patterns for path in sorted(folder.glob(pattern))), "")


GENERATION = "generation_config.json"


def stop_tokens(folder: Path, config: Any, tokenizer: Any) -> tuple[int, ...]:
    """Return the ids of tokens that end an answer, ascending.

    They are those of generation_config.json, else of the configuration, and always the end token of the tokenizer and of
    its chat template. Raises ModelFileError if generation_config.json cannot be read.
    """
    try:
        token_ids = _ids(_read(folder / GENERATION).get("eos_token_id"))
        token_ids = token_ids or _ids(getattr(text_config(config), "eos_token_id", None))
    except (TypeError, ValueError) as error:
        raise ModelFileError(
            f"eos_token_id in {folder} is no token id: {error}. Fetch the model again."
        ) from error
    return tuple(sorted({*token_ids, int(tokenizer.eos_token_id), end_of_answer(tokenizer)}))


def context_length(config: Any) -> int | None:
    """Return the number of positions of the model; None if its configuration does not say."""
    length = getattr(text_config(config), "max_position_embeddings", None)
    return int(length) if length else None


def text_config(config: Any) -> Any:
    """Return the language model's part of a configuration."""
    return config.get_text_config(decoder=True)


def _ids(value: Any) -> list[int]:
    if value is None:
        return []
    return [int(number) for number in value] if isinstance(value, list) else [int(value)]


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{path} cannot be read: {error}. Fetch it again.") from error
    return content if isinstance(content, dict) else {}
