"""Which tokens may come next in an answer of given forms: a tree of texts with loops for free text, walked per token.

Property: every answer that ends through allowed tokens has one of the forms. An answer can always end within its token
limit: a token that would leave too few tokens is not allowed.

A tokenizer's tokens are kept as bytes, in a tree, to look up which tokens may continue a text. That finds every
tokenization of a text, also those where one token ends one part of an answer and begins the next. So the policy keeps the
tokenization that it has learned.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from hindcast.core.errors import EngineFailed, ModelFileError
from hindcast.core.grammar.allowed_tokens import Allowed, unpack_allowed
from hindcast.core.grammar.answer_constraints import Form, FreeText

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

    def __init__(self, tokenizer: Any, *, size: int, end_tokens: Sequence[int]) -> None:
        """`size`: number of tokens of the model; `end_tokens`: tokens that end an answer. Raises ModelFileError unless tokens are
        byte-level.
        """
        self.size = size
        self.end_tokens = list(end_tokens)
        texts = {token: text for token, text in texts_of(tokenizer).items() if token not in self.end_tokens}
        self.root = _token_tree(texts)
        self.plain_text: dict[FreeText, Allowed] = {}
        """Tokens that are free text throughout, by its kind."""
        self.structured: dict[FreeText, Branch] = {}
        """All others, by the kind of free text that contains them."""
        for free in FreeText:
            plain_tokens = {
                token for token, text in texts.items() if all(is_plain(byte, free) for byte in text)
            }
            self.plain_text[free] = np.zeros(size, dtype=np.bool_)
            self.plain_text[free][sorted(plain_tokens)] = True
            self.structured[free] = _token_tree(
                {token: text for token, text in texts.items() if token not in plain_tokens}
            )


def _token_tree(texts: dict[int, bytes]) -> Branch:
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
    byte_values = [table.get(character) for character in token]
    return token.encode() if None in byte_values else bytes(byte for byte in byte_values if byte is not None)


@cache
def _byte_table() -> dict[str, int]:
    """GPT-2's characters for bytes: printable ones for themselves, the others from 256 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
    unprintable = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(256 + n): byte for n, byte in enumerate(unprintable)
    }


NEVER = 1 << 30
"""Distance to the end from a place without a next token."""
ESCAPED = b'"\\nrt'
"""Bytes that may follow a backslash in quoted text (`core.grammar.answer_parser`)."""


class Guide(Protocol):
    """Gives the allowed next tokens while one answer is drawn."""

    def allowed(self) -> Allowed:
        """The tokens that may come next  # [vocabulary]; at least one."""
        ...

    def take(self, token: int) -> None:
        """Advance by a drawn token."""
        ...


class _Place:
    """A position in the tree of forms: after some text."""

    __slots__ = ("escape", "free", "is_end", "next", "steps", "tokens_to_end")

    def __init__(self) -> None:
        self.next: dict[int, _Place] = {}
        """Next places, by the byte that follows."""
        self.free: FreeText | None = None
        """Kind of free text that may continue here."""
        self.escape: _Place | None = None
        """Place after a backslash in this free text, if it has escapes."""
        self.is_end = False
        """Whether the answer may end here."""
        self.tokens_to_end = NEVER
        """Fewest tokens to the end from here, the end token included."""
        self.steps: tuple[_Step, ...] | None = None
        """Steps by tokens from here, computed on demand; in free text, only by tokens that are not plain."""

    def next_place(self, byte: int) -> "_Place | None":
        following = self.next.get(byte)
        if following is None and self.free is not None and is_plain(byte, self.free):
            return self
        return following


class _Step(NamedTuple):
    tokens: list[int]
    to: _Place


class FormGuide:
    """A `Guide` along answers of given forms."""

    def __init__(self, forms: Sequence[Form], vocabulary: Vocabulary, *, max_tokens: int) -> None:
        """Raises EngineFailed when no answer of the forms has at most `max_tokens` tokens, the end token included."""
        self._vocabulary = vocabulary
        self._tokens_left = max_tokens
        places = _tree(forms)
        self._place = places[0]
        for place in reversed(places):  # later places were made after earlier ones
            self._measure(place)
        if self._place.tokens_to_end > max_tokens:
            raise EngineFailed(
                f"none of {len(forms)} allowed answers can be given in the {max_tokens} tokens of actors.max_answer_tokens. "
                "Raise it."
            )

    def allowed(self) -> Allowed:
        """See `Guide`."""
        allowed_tokens = np.zeros(self._vocabulary.size, dtype=np.bool_)
        place, tokens_left = self._place, self._tokens_left - 1
        if place.free is not None and place.tokens_to_end <= tokens_left:
            allowed_tokens |= self._vocabulary.plain_text[place.free]
        for step in self._steps(place):
            if step.to.tokens_to_end <= tokens_left:
                allowed_tokens[step.tokens] = True
        if place.is_end:
            allowed_tokens[self._vocabulary.end_tokens] = True
        return allowed_tokens

    def take(self, token: int) -> None:
        """See `Guide`."""
        self._tokens_left -= 1
        place = self._place
        if token in self._vocabulary.end_tokens or (
            place.free is not None and self._vocabulary.plain_text[place.free][token]
        ):
            return
        self._place = next(step.to for step in self._steps(place) if token in step.tokens)

    def _steps(self, place: _Place) -> tuple[_Step, ...]:
        if place.steps is None:
            free = place.free
            tree = self._vocabulary.root if free is None else self._vocabulary.structured[free]
            place.steps = tuple(_walk(tree, place))
        return place.steps

    def _measure(self, place: _Place) -> None:
        """Compute `tokens_to_end`. Free text ends as soon as possible, by a token that begins with its end."""
        if place.is_end:
            place.tokens_to_end = 1
        elif place.free is None:
            place.tokens_to_end = 1 + min(
                (step.to.tokens_to_end for step in self._steps(place)), default=NEVER
            )
        else:
            steps_to_end = (
                _steps_beginning_with(self._vocabulary.root, byte, to)
                for byte, to in place.next.items()
                if to is not place.escape
            )
            place.tokens_to_end = 1 + min(
                (step.to.tokens_to_end for steps in steps_to_end for step in steps), default=NEVER
            )
        if place.escape is not None:
            place.escape.tokens_to_end = 1 + place.tokens_to_end


class RecordedGuide:
    """A `Guide` along a recorded answer: the recorded token sets, in their order."""

    def __init__(self, allowed: bytes, vocabulary: Vocabulary) -> None:
        """`allowed`: sets packed by `core.grammar.allowed_tokens`."""
        self._sets = unpack_allowed(allowed)
        self._ends = vocabulary.end_tokens
        self._at = 0

    def allowed(self) -> Allowed:
        """The set at this position. After the last one only end tokens, for a draw that differs from the recording."""
        if self._at < len(self._sets):
            recorded: Allowed = self._sets[self._at]
            return recorded
        end_tokens = np.zeros(self._sets.shape[1], dtype=np.bool_)
        end_tokens[self._ends] = True
        return end_tokens

    def take(self, token: int) -> None:
        """See `Guide`."""
        self._at += 1


def _steps_beginning_with(root: Branch, byte: int, place: _Place) -> Iterator[_Step]:
    """Steps by the tokens that begin with this byte."""
    branch = root.branches.get(byte)
    if branch is not None:
        if branch.tokens:
            yield _Step(branch.tokens, place)
        yield from _walk(branch, place)


def _walk(tree: Branch, place: _Place) -> Iterator[_Step]:
    """Steps by the tokens of a tree; tokens without a next place are left out."""
    if place.free is None and len(place.next) < len(tree.branches):
        pairs = ((tree.branches[byte], to) for byte, to in place.next.items() if byte in tree.branches)
    else:
        pairs = (
            (branch, to)
            for byte, branch in tree.branches.items()
            if (to := place.next_place(byte)) is not None
        )
    for branch, to in pairs:
        if branch.tokens:
            yield _Step(branch.tokens, to)
        yield from _walk(branch, to)


def _tree(forms: Sequence[Form]) -> list[_Place]:
    """All forms in one tree, its root first; common beginnings share their places.

    Raises:
        ValueError: fixed text and free text begin at the same place, which is ambiguous.
    """
    places = [_Place()]
    for form in forms:
        place = places[0]
        for part in form:
            place = _free(place, part) if isinstance(part, FreeText) else _text(place, part, places)
        place.is_end = True
    for place in places:
        if place.free is not None and any(is_plain(byte, place.free) for byte in place.next):
            raise ValueError("fixed text and free text begin at the same place of two forms")
    return places


def _text(place: _Place, text: str, places: list[_Place]) -> _Place:
    for byte in text.encode():
        following = place.next.get(byte)
        if following is None:
            following = place.next[byte] = _Place()
            places.append(following)
        place = following
    return place


def _free(place: _Place, free: FreeText) -> _Place:
    place.free = free
    if free is FreeText.QUOTED and place.escape is None:
        place.escape = place.next[ord("\\")] = _Place()
        place.escape.next = dict.fromkeys(ESCAPED, place)
    return place
