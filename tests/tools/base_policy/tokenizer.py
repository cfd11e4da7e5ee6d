"""The base policy's tokenizer: byte-level BPE over words, and whole tokens for what answers and pages are made of.

An element id is one token where the page labels an element (` [7]`) and one where an answer names it
(` element="7"`), so that a look-up is one token copied; the frame of each call is one token, so that answers are
short. Every text survives encoding and decoding unchanged.
"""

from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from hindcast.core.domain.observation import KINDS
from tools.base_policy.pages import MOST_IDS

PAD, USER, ASSISTANT, END = "<|pad|>", "<|user|>", "<|assistant|>", "<|end|>"
SPECIAL = (PAD, USER, ASSISTANT, END)

VOCABULARY_SIZE = 2048
MAX_TOKENS = 2048

WHOLE = (
    "Task Instruction:",
    "\n\nRound ",
    "\n\n** Simplified html **",
    *(f"\n{kind}" for kind in KINDS),
    " = on",
    " = off",
    "# Element:",
    '\ndo(action="Click",',
    '\ndo(action="Type", argument="',
    '\ndo(action="Search", argument="',
    '\ndo(action="Select Dropdown Option", argument="',
    '\ndo(action="Press", argument="',
    'do(action="Press", argument="',
    'do(action="Scroll Down")',
    'do(action="Scroll Up")',
    'do(action="Go_backward")',
    'exit(message="',
    '")',
    '",',
    *(f" [{number}]" for number in range(MOST_IDS)),
    *(f' element="{number}"' for number in range(MOST_IDS)),
)
"""Texts that are one token wherever they stand. None is special: a page that contains one is read as it is."""

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|user|>' if message['role'] == 'user' else '<|assistant|>' }}{{ message['content'] }}<|end|>"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def train_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Learn the merges from prompts and answers as they will be met."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r" ?\p{L}+| ?\d| ?[^\s\p{L}\d]|\s"), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE - len(WHOLE),
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((_without_whole(text) for text in texts), trainer)
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=False) for text in WHOLE])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        model_max_length=MAX_TOKENS,
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def save_tokenizer(tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json, the chat template inside."""
    tokenizer.save_pretrained(folder, save_jinja_files=False)


def _without_whole(text: str) -> str:
    """The text without what is a token anyway, so that no merge is spent on it."""
    for whole in WHOLE[: -2 * MOST_IDS]:
        text = text.replace(whole, "\n")
    return text
