"""Loading of a policy's tokenizer. That of the shipped policy loads without torch."""

from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerFast

from hindcast.core.errors import ModelFileError
from hindcast.core.models.folders import base_policy_folder, require_folder


def load_tokenizer(folder: Path) -> Any:
    """Load the tokenizer of a policy's folder. Raises ModelFileError."""
    require_folder(folder)
    try:
        tokenizer = _class_for(folder).from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # tokenizers raises bare Exception on a damaged file
        raise ModelFileError(f"{folder / 'tokenizer.json'} cannot be read as a tokenizer: {error}") from error
    if not tokenizer.is_fast or tokenizer.eos_token_id is None or not tokenizer.chat_template:
        raise ModelFileError(
            f"the tokenizer in {folder} cannot be used: it needs tokenizer.json, an end token (eos_token in "
            "tokenizer_config.json) and a chat template (chat_template there, or chat_template.jinja), which base models often "
            "lack: take the template of the instruction-tuned model of the same family"
        )
    return tokenizer


def _class_for(folder: Path) -> Any:
    if folder == base_policy_folder():
        return PreTrainedTokenizerFast
    # it loads torch, which takes four seconds of a core, to find the class that a folder names
    from transformers import AutoTokenizer

    return AutoTokenizer
