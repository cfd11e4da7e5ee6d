"""Tiny random models of published families: their architectures, tokenizers trained here, chat templates in their format.

What differs between families and has to be right: pre-tokenisation, special tokens and those that are added without being
special, several end tokens, a padded vocabulary, no pad token, tied and untied heads, weights in shards.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

ORDINARY = 700
"""Tokens of a tokenizer beside its special ones."""
LONGEST = 2048

_LLAMA3_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_QWEN_WORDS = _LLAMA3_WORDS.replace(r"\p{N}{1,3}", r"\p{N}")

_CHATML = (
    "{%- if messages[0]['role'] == 'system' %}{{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}"
    "{%- else %}{{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}{%- endif %}"
    "{%- for message in messages %}{%- if message['role'] != 'system' %}"
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
_THINKING_CHATML = (
    "{%- for message in messages %}{%- set content = message['content'] %}"
    "{%- if message['role'] == 'assistant' and '</think>' in content %}"
    "{%- set content = content.split('</think>')[-1].lstrip('\\n') %}{%- endif %}"
    "{{- '<|im_start|>' + message['role'] + '\\n' + content + '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}{%- endif %}"
)
_LLAMA3 = (
    "{{- bos_token }}"
    "{%- if not date_string is defined %}{%- if strftime_now is defined %}{%- set date_string = strftime_now('%d %b %Y') %}"
    "{%- else %}{%- set date_string = '26 Jul 2024' %}{%- endif %}{%- endif %}"
    "{{- '<|start_header_id|>system<|end_header_id|>\\n\\nCutting Knowledge Date: December 2023\\nToday Date: ' }}"
    "{{- date_string + '\\n\\n<|eot_id|>' }}"
    "{%- for message in messages %}{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}"
    "{{- message['content'] | trim + '<|eot_id|>' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"
)
_GLM4 = (
    "[gMASK]<sop>{% for message in messages %}<|{{ message['role'] }}|>\n{{ message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)

SMALL = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": LONGEST,
}


class Family(NamedTuple):
    """How a published family differs from the others."""

    model_type: str
    words: str
    special: tuple[str, ...]
    added: tuple[str, ...]
    """Added to the vocabulary without being special."""
    eos: str
    stops: tuple[str, ...]
    """Those of generation_config.json."""
    template: str
    prefix: str = ""
    """What the tokenizer puts before every text by itself."""
    pad: str | None = None
    tied: bool = False
    settings: dict[str, Any] = {}  # noqa: RUF012  # read only
    shards: bool = False


FAMILIES = {
    "qwen2": Family(
        "qwen2", _QWEN_WORDS, ("<|endoftext|>", "<|im_start|>", "<|im_end|>"), ("<tool_call>", "</tool_call>"),
        "<|im_end|>", ("<|im_end|>", "<|endoftext|>"), _CHATML, pad="<|endoftext|>", tied=True,
    ),
    "qwen3": Family(
        "qwen3", _QWEN_WORDS, ("<|endoftext|>", "<|im_start|>", "<|im_end|>"), ("<think>", "</think>"),
        "<|im_end|>", ("<|im_end|>", "<|endoftext|>"), _THINKING_CHATML, pad="<|endoftext|>",
        settings={"head_dim": 16}, shards=True,
    ),
    "llama3": Family(
        "llama", _LLAMA3_WORDS,
        ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>"),
        (), "<|eot_id|>", ("<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"), _LLAMA3, prefix="<|begin_of_text|>",
        settings={"rope_parameters": {
            "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 512}},
    ),
    "glm4": Family(
        "glm4", _LLAMA3_WORDS,
        ("<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
        (), "<|endoftext|>", ("<|endoftext|>", "<|user|>", "<|observation|>"), _GLM4, prefix="[gMASK]<sop>",
        pad="<|endoftext|>", settings={"head_dim": 8, "attention_bias": True},
    ),
}  # fmt: skip


def write_family(folder: Path, family: Family, texts: Sequence[str], *, seed: int = 1) -> Path:
    """A folder as one that was fetched: configuration, tokenizer, template, weights."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = tokenizer_of(family, texts)
    tokenizer.save_pretrained(folder)
    ids = {name: tokenizer.convert_tokens_to_ids(name) for name in (*family.special, family.eos)}
    config = AutoConfig.for_model(
        family.model_type,
        **SMALL,
        **family.settings,
        vocab_size=-(-len(tokenizer) // 64) * 64 + 64,
        tie_word_embeddings=family.tied,
        eos_token_id=ids[family.eos],
        bos_token_id=None,
        pad_token_id=None if family.pad is None else ids[family.pad],
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config)
        with torch.no_grad():
            for value in model.parameters():
                if value.ndim > 1:
                    value.normal_(std=0.15)
    model.save_pretrained(folder, max_shard_size="60KB" if family.shards else "1GB")
    stops = [ids[name] for name in family.stops]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": stops, "temperature": 0.6}))
    return folder


def texts_of_pages() -> list[str]:
    """What tokenizers are trained on: words of shops, of answers, of markup."""
    lines = [
        '# Element: Brass lamp [7]\ndo(action="Click", element="7")',
        'do(action="Type", argument="two lamps", element="12")\nexit(message="$12.90")',
        'Task Instruction: Find the price of the brass lamp.\n\nRound 0\n\n<a id="3">Lamps</a>\n<p>In stock</p>',
        "page Shop\nheading Lamps\nlink Brass lamp [3]\nbutton Add to cart [4]\ninput Search [5]",
        "You are a helpful assistant. user assistant system Today Date: 26 Jul 2024",
    ]
    return [line.replace("7", str(number)) for number in range(40) for line in lines]


def tokenizer_of(family: Family, texts: Sequence[str]) -> PreTrainedTokenizerFast:
    """Trained on these texts."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(family.words), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=ORDINARY, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    backend.train_from_iterator(texts, trainer)
    backend.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in family.special])
    backend.add_tokens([AddedToken(name, normalized=False, special=False) for name in family.added])
    if family.prefix:
        parts = [name for name in family.special if name in family.prefix]
        backend.post_processor = processors.TemplateProcessing(
            single=[*parts, "$A"],
            pair=[*parts, "$A", "$B"],
            special_tokens=[(name, backend.token_to_id(name)) for name in parts],
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token=family.eos,
        bos_token="<|begin_of_text|>" if family.prefix == "<|begin_of_text|>" else None,
        pad_token=family.pad,
        chat_template=family.template,
        clean_up_tokenization_spaces=False,
    )


def write_families(home: Path) -> dict[str, Path]:
    """Write a model of every family; returns its folder by name."""
    texts = texts_of_pages()
    return {name: write_family(home / name, family, texts) for name, family in FAMILIES.items()}
