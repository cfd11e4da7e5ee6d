"""A tokenizer's tokens as bytes, in a tree, to look up which tokens may continue a text.

It finds every tokenization of a text, also those where one token ends one part of an answer and begins the next. So the
policy keeps the tokenization that it has learned.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from hindcast.core.errors import ModelFileError
from hindcast.core.grammar.allowed_tokens import Allowed
from hindcast.core.grammar.answer_constraints import FreeText

STRUCTURE = {FreeText.QUOTED: frozenset(b'"\\'), FreeText.LINE: frozenset(b"\n")}
"""Bytes that end free text, or have a meaning in it."""


def is_plain(byte: int, free: FreeText) -> bool:
    """Whether a byte of free text is literal: all but control characters and `STRUCTURE`."""
    return byte >= 0x20 and byte != 0x7F and byte not in STRUCTURE[free]


class Branch:
    """Tokens with a common beginning."""

    __slots__ = ("branches", "tokens")

    def __init__(self) -> None:
        self.branches: dict[int, Branch] = {}
        """Longer tokens, by the next byte."""
        self.tokens: list[int] = []
        """Tokens that end here; several where a vocabulary has one text twice."""


class Vocabulary:
    """The ordinary tokens of one tokenizer; special ones occur in no text."""

    def __init__(self, tokenizer: Any, *, size: int, ends: Sequence[int]) -> None:
        """`size`: number of tokens of the model; `ends`: tokens that end an answer. Raises ModelFileError unless tokens are
        byte-level.
        """
        self.size = size
        self.ends = list(ends)
        texts = {token: text for token, text in texts_of(tokenizer).items() if token not in self.ends}
        self.root = _tree(texts)
        self.plain: dict[FreeText, Allowed] = {}
        """Tokens that are free text throughout, by its kind."""
        self.structured: dict[FreeText, Branch] = {}
        """All others, by the kind of free text that contains them."""
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
    """The bytes of each ordinary token; empty ones are left out."""
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
    """Decode a token as the byte-level decoder does; a token with a character for no byte stays as it is."""
    table = _byte_table()
    known = [table.get(character) for character in token]
    return token.encode() if None in known else bytes(byte for byte in known if byte is not None)


@cache
def _byte_table() -> dict[str, int]:
    """GPT-2's characters for bytes: printable ones for themselves, the others from 256 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}
