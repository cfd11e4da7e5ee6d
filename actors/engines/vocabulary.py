"""A tokenizer's tokens as bytes, in a tree, so that what may come next can be looked up for a text and not for a token.

Every way of cutting a text into tokens is found, also those where one token ends one part of an answer and begins the
next: the policy keeps the cutting that it has learned.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from hindcast.core.errors import ModelFileError
from hindcast.core.grammar.allowed_tokens import Allowed
from hindcast.core.grammar.answer_constraints import FreeText

STRUCTURE = {FreeText.QUOTED: frozenset(b'"\\'), FreeText.LINE: frozenset(b"\n")}
"""Bytes that end free text, or mean something in it."""


def is_plain(byte: int, free: FreeText) -> bool:
    """Whether a byte of free text stands for itself: all but control characters and `STRUCTURE`."""
    return byte >= 0x20 and byte != 0x7F and byte not in STRUCTURE[free]


class Branch:
    """Tokens that begin alike."""

    __slots__ = ("branches", "tokens")

    def __init__(self) -> None:
        self.branches: dict[int, Branch] = {}
        """By the next byte."""
        self.tokens: list[int] = []
        """Those that end here; several where a vocabulary has one text twice."""


class Vocabulary:
    """The ordinary tokens of one tokenizer; special ones are in no text."""

    def __init__(self, tokenizer: Any, *, size: int, ends: Sequence[int]) -> None:
        """`size`: how many tokens the model tells apart; `ends`: those that end an answer. Raises ModelFileError unless tokens
        are byte-level ones."""
        self.size = size
        self.ends = list(ends)
        texts = {token: text for token, text in texts_of(tokenizer).items() if token not in self.ends}
        self.root = _tree(texts)
        self.plain: dict[FreeText, Allowed] = {}
        """Tokens that are free text from end to end, by its kind."""
        self.structured: dict[FreeText, Branch] = {}
        """All others, by the kind of free text that they are met in."""
        for free in FreeText:
            plain = {token for token, text in texts.items() if all(is_plain(byte, free) for byte in text)}
            self.plain[free] = np.zeros(size, dtype=np.bool_)
            self.plain[free][sorted(plain)] = True
            self.structured[free] = _tree(
                {token: text for token, text in texts.items() if token not in plain}
            )


def _tree(texts: dict[int, bytes]) -> Branch:
    root = Branch()
    for token, text in texts.items():
        branch = root
        for byte in text:
            branch = branch.branches.setdefault(byte, Branch())
        branch.tokens.append(token)
    return root


def texts_of(tokenizer: Any) -> dict[int, bytes]:
    """What each ordinary token comes to when it is decoded, empty ones left out."""
    backend = tokenizer.backend_tokenizer
    if type(backend.decoder).__name__ != "ByteLevel":
        raise ModelFileError(
            f"answers of this policy cannot be constrained: its tokenizer decodes by {type(backend.decoder).__name__}, and "
            "only byte-level tokenizers are supported. Set scaffold.constrained = false."
        )
    special = {number for number, added in backend.get_added_tokens_decoder().items() if added.special}
    texts = {}
    for token, number in backend.get_vocab(with_added_tokens=True).items():
        if number not in special and token:
            texts[number] = _decoded(token)
    return dict(sorted(texts.items()))


def _decoded(token: str) -> bytes:
    """As the byte-level decoder has it: a token with a character that stands for no byte is taken as it is."""
    table = _byte_table()
    known = [table.get(character) for character in token]
    return token.encode() if None in known else bytes(byte for byte in known if byte is not None)


@cache
def _byte_table() -> dict[str, int]:
    """GPT-2's characters for bytes: printable ones stand for themselves, the others for those from 256 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}
