"""Generation settings of a model folder: the tokens that end an answer, and the context length."""

from pathlib import Path
from typing import Any

from hindcast.core.errors import ModelFileError
from hindcast.core.prompts.chat_frame import end_of_answer
from hindcast.core.text.plain_values import parse_json

GENERATION = "generation_config.json"


def stop_tokens(folder: Path, config: Any, tokenizer: Any) -> tuple[int, ...]:
    """Return the ids of tokens that end an answer, ascending.

    They are those of generation_config.json, else of the configuration, and always the end token of the tokenizer and of
    its chat template. Raises ModelFileError if generation_config.json cannot be read.
    """
    try:
        named = _ids(_read(folder / GENERATION).get("eos_token_id"))
        named = named or _ids(getattr(text_config(config), "eos_token_id", None))
    except (TypeError, ValueError) as error:
        raise ModelFileError(
            f"eos_token_id in {folder} is no token id: {error}. Fetch the model again."
        ) from error
    return tuple(sorted({*named, int(tokenizer.eos_token_id), end_of_answer(tokenizer)}))


def context_length(config: Any) -> int | None:
    """Return the number of positions of the model; None if its configuration does not say."""
    found = getattr(text_config(config), "max_position_embeddings", None)
    return int(found) if found else None


def text_config(config: Any) -> Any:
    """Return the language model's part of a configuration."""
    return config.get_text_config(decoder=True)


def _ids(found: Any) -> list[int]:
    if found is None:
        return []
    return [int(number) for number in found] if isinstance(found, list) else [int(found)]


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{path} cannot be read: {error}. Fetch it again.") from error
    return content if isinstance(content, dict) else {}
