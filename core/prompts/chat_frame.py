"""Framing of turns in a prompt: the token ids around instruction, pages and answers. Framings are named, versioned, recorded.

- `chat/1`: the model's own chat template, rendered once around marks and cut at them. So its special tokens occur exactly
  once, and contents never pass through the template: some templates trim contents or remove thoughts.
- `webrl/1`: the format of WebRL's published checkpoints (Llama-3.1-8B, GLM-4-9B; THUDM/WebRL, `scripts/process_data.py`
  and the template `llama3_web` of its LLaMA-Factory): one text with role marks, after the tokenizer's own prefix. In round
  0 the instruction replaces the page of a past round.
- `webrl/2`: the same, but a long page is first cut by characters, as in that code, then by tokens.

Contents are data: `encode_text` produces no token that could open or close a turn.
"""

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from threading import Lock
from typing import Any, Literal, Protocol

import msgspec

from hindcast.core.errors import ModelFileError

FramingName = Literal["chat/1", "webrl/1", "webrl/2"]

_ENCODING = Lock()

STAND_IN = "** Simplified html **"
"""Placeholder for the page of a past round."""

WEBRL_END = "<|eot_id|>"
WEBRL_ROLE = "<|start_header_id|>{}<|end_header_id|>"
WEBRL_CHARS = 16384 - 512
"""Most characters of past rounds and page together (`format_prompt`)."""
_WEBRL_MARKS = (WEBRL_END, *WEBRL_ROLE.split("{}"))

_MARKS = ("first-user-mark", "answer-mark", "second-user-mark")
_TODAY = datetime(2024, 7, 26)
"""Date for templates that show one: prompts must not depend on the current day."""
_FAMILIES = {
    "<|im_start|>": "chatml",
    "<|start_header_id|>": "llama3",
    "[gMASK]": "glm4",
    "[INST]": "mistral",
    "<start_of_turn>": "gemma",
}
"""Mark of a template family -> the family's name in the log."""


class ChatFrame(msgspec.Struct, frozen=True):
    """Token ids that a chat template puts around contents."""

    opening: tuple[int, ...]
    """Before the first user turn."""
    to_answer: tuple[int, ...]
    """After the last user turn; the prompt ends with them."""
    to_past_answer: tuple[int, ...]
    """Between a user turn and a past answer."""
    to_user: tuple[int, ...]
    """Between an answer and the next user turn."""
    lead: str
    """Text before an answer in its turn, after `to_answer`: GLM-4's line break."""
    name: str
    """Family and digest, such as `chatml@1f0c9a52`: equal names mean equal frames."""


class Turns(Protocol):
    """A framing: turns contents into the token ids of a prompt."""

    around_page: tuple[str, str]
    """Text before and after the page in its turn."""
    closing: list[int]
    """Token ids at the end of the prompt, after the page and the text around it."""
    lead: str
    """Text at the start of a demonstrated answer."""
    end: int
    """Token at the end of a demonstrated answer."""

    def head(self, instruction: str, answers: Sequence[str], pages: Sequence[str | None]) -> list[int]:
        """Encode everything before the page. `pages` are those of the rounds of `answers`; None: the placeholder."""

    def cut(self, page: str, instruction: str, answers: Sequence[str], pages: Sequence[str | None]) -> str:
        """Cut the page's text to the framing's own limit, which is not one of tokens."""


class ChatTurns:
    """The framing `chat/1`: the model's own chat template."""

    around_page = ("", "")

    def __init__(self, tokenizer: Any, *, thinking: bool) -> None:
        self._tokenizer = tokenizer
        self._frame = chat_frame(tokenizer, thinking=thinking)
        self.closing = list(self._frame.to_answer)
        self.lead = self._frame.lead
        self.end = end_of_answer(tokenizer)

    def head(self, instruction: str, answers: Sequence[str], pages: Sequence[str | None]) -> list[int]:
        """See `Turns`."""
        ids = list(self._frame.opening)
        opening = _task(instruction)
        for number, (page, answer) in enumerate(zip(pages, answers, strict=True)):
            page_text = STAND_IN if page is None else page
            ids += encode_text(self._tokenizer, f"{opening}{_round(number)}{page_text}")
            ids += self._frame.to_past_answer
            ids += encode_text(self._tokenizer, answer.strip())
            ids += self._frame.to_user
            opening = ""
        return ids + encode_text(self._tokenizer, f"{opening}{_round(len(answers))}")

    def cut(self, page: str, instruction: str, answers: Sequence[str], pages: Sequence[str | None]) -> str:
        """Return the whole page: this framing limits tokens only."""
        return page


class WebrlTurns:
    """The framings `webrl/1` and, with `max_chars`, `webrl/2`.

    Role marks that are not special tokens of a tokenizer (GLM-4's) are tokenized together with the text after them.
    """

    lead = ""

    def __init__(self, tokenizer: Any, *, max_chars: int | None) -> None:
        vocabulary = tokenizer.get_vocab()
        if WEBRL_END not in vocabulary:
            raise ModelFileError(
                f"actors.framing = 'webrl/…' closes turns by {WEBRL_END}, which this model's tokenizer does not know. WebRL's "
                "published checkpoints do; for any other model leave actors.framing at 'chat/1'."
            )
        self._tokenizer = tokenizer
        self._max_chars = max_chars
        self._opening = _own_prefix(tokenizer)
        self.end = int(vocabulary[WEBRL_END])
        are_tokens = WEBRL_ROLE.partition("{}")[0] in vocabulary
        self._to_user, self._user = self._role("user", are_tokens=are_tokens)
        self._to_answer, self._assistant = self._role("assistant", are_tokens=are_tokens)
        self.around_page = (f"{self._user}\n", "\n\n")
        self.closing = [*self._to_answer, *encode_text(tokenizer, f"{self._assistant}\n")]

    def _role(self, role: str, *, are_tokens: bool) -> tuple[list[int], str]:
        """Return the token ids that open a turn, and the part of the mark that belongs to the turn's text."""
        mark = WEBRL_ROLE.format(role)
        framed = f"{WEBRL_END}{mark}" if are_tokens else WEBRL_END
        return encode_frame(self._tokenizer, framed), "" if are_tokens else mark

    def head(self, instruction: str, answers: Sequence[str], pages: Sequence[str | None]) -> list[int]:
        """See `Turns`."""
        ids = [*self._opening, *encode_text(self._tokenizer, _task(instruction) + _round(0)), *self._to_user]
        before, after = self.around_page
        for number, (page, answer) in enumerate(zip(pages, answers, strict=True)):
            stand_in = STAND_IN if number else instruction
            ids += encode_text(self._tokenizer, f"{before}{stand_in if page is None else page}{after}")
            ids += self._to_answer
            ids += encode_text(self._tokenizer, f"{self._assistant}\n{answer}\n\n{_round(number + 1)}")
            ids += self._to_user
        return ids

    def cut(self, page: str, instruction: str, answers: Sequence[str], pages: Sequence[str | None]) -> str:
        """Cut the page to the part of `max_chars` that past rounds, with their marks, leave.

        If past rounds alone are too long, the released code cuts their excess from the page's end: a slice with a negative
        end. This does the same unless nothing would remain: then the page stays whole, because the limit of tokens later
        drops the earliest answers for it.
        """
        if self._max_chars is None:
            return page
        user, assistant = (WEBRL_END + WEBRL_ROLE.format(role) for role in ("user", "assistant"))
        past = 0
        for number, (past_page, answer) in enumerate(zip(pages, answers, strict=True)):
            stand_in = STAND_IN if number else instruction
            content = stand_in if past_page is None else past_page
            past += len(f"{_round(number)}{user}\n{content}\n\n{assistant}\n{answer}\n\n")
        if past + len(page) <= self._max_chars:
            return page
        return page[: self._max_chars - past] or page


@lru_cache(maxsize=16)
def turns_of(tokenizer: Any, framing: FramingName = "chat/1", *, thinking: bool = False) -> Turns:
    """Make the turns of a framing. `thinking`: whether a template with a thinking mode enables it."""
    if framing == "chat/1":
        return ChatTurns(tokenizer, thinking=thinking)
    return WebrlTurns(tokenizer, max_chars=WEBRL_CHARS if framing == "webrl/2" else None)


def encode_text(tokenizer: Any, text: str) -> list[int]:
    """Encode plain text: nothing in it becomes a special token or a token that frames a turn."""
    ids = _encode(tokenizer, text, as_plain=True)
    framing = framing_tokens(tokenizer)
    if framing.keys().isdisjoint(ids):
        return ids
    # tokenizers do not split added tokens that are not declared special: cut the text within each, after its first letter
    pattern = re.compile(
        "|".join(f"(?<={re.escape(text[0])})(?={re.escape(text[1:])})" for text in framing.values() if text)
    )
    parts = (_encode(tokenizer, part, as_plain=True) for part in pattern.split(text))
    return [token for part in parts for token in part if token not in framing]


def encode_frame(tokenizer: Any, text: str) -> list[int]:
    """Encode a frame's text, including its special tokens."""
    return _encode(tokenizer, text, as_plain=False)


def _encode(tokenizer: Any, text: str, *, as_plain: bool, add_special_tokens: bool = False) -> list[int]:
    """Encode text in one thread at a time.

    What a call wants of special tokens is a switch of the whole tokenizer, so two threads would encode by each other's.
    """
    with _ENCODING:
        encoded = tokenizer(text, add_special_tokens=add_special_tokens, split_special_tokens=as_plain)
    ids: list[int] = encoded["input_ids"]
    return ids


@lru_cache(maxsize=16)
def chat_frame(tokenizer: Any, *, thinking: bool = False) -> ChatFrame:
    """Render the chat template once around marks and cut it at the marks. Raises ModelFileError if a mark is missing."""
    rendered = render_chat(tokenizer, _MARKS, thinking=thinking)
    pieces = re.split("|".join(_MARKS), rendered)
    if len(pieces) != len(_MARKS) + 1:
        raise ModelFileError(
            f"the chat template does not show every turn once: of user, assistant, user it makes {rendered!r}. "
            "Give the model's folder a template that does."
        )
    opening, to_past_answer, to_user, closing = pieces
    to_answer = closing or to_past_answer
    family = next((name for mark, name in _FAMILIES.items() if mark in rendered), "template")
    return ChatFrame(
        opening=tuple(encode_frame(tokenizer, opening)),
        to_answer=tuple(encode_frame(tokenizer, to_answer)),
        to_past_answer=tuple(encode_frame(tokenizer, to_past_answer)),
        to_user=tuple(encode_frame(tokenizer, to_user)),
        lead=to_past_answer.removeprefix(to_answer) if to_past_answer.startswith(to_answer) else "",
        name=f"{family}@{sha256(rendered.encode()).hexdigest()[:8]}",
    )


def render_chat(tokenizer: Any, contents: Sequence[str], *, thinking: bool) -> str:
    """Render alternating user and assistant turns by the chat template, up to the start of an answer; the same on every day."""
    turns = [
        {"role": "assistant" if number % 2 else "user", "content": content}
        for number, content in enumerate(contents)
    ]
    today: Callable[[str], str] = _TODAY.strftime
    rendered: str = tokenizer.apply_chat_template(
        turns,
        tokenize=False,
        add_generation_prompt=True,
        strftime_now=today,
        enable_thinking=thinking,
    )
    return rendered


@lru_cache(maxsize=16)
def end_of_answer(tokenizer: Any) -> int:
    """Find the token that closes an assistant's turn: that of the chat template, else the tokenizer's end token."""
    after = chat_frame(tokenizer).to_user[:1]
    closes = bool(after) and after[0] in tokenizer.added_tokens_decoder
    return int(after[0] if closes else tokenizer.eos_token_id)


@lru_cache(maxsize=16)
def framing_tokens(tokenizer: Any) -> dict[int, str]:
    """Find the tokens that text never produces, with their texts.

    They are the special tokens, and the added tokens that frame turns by the tokenizer's own template or by `webrl/1`, whose
    marks that template need not have.
    """
    frame = chat_frame(tokenizer)
    framing = {*frame.opening, *frame.to_past_answer, *frame.to_user}
    return {
        number: token.content
        for number, token in tokenizer.added_tokens_decoder.items()
        if token.special or number in framing or token.content in _WEBRL_MARKS
    }


def _own_prefix(tokenizer: Any) -> list[int]:
    """Find the tokenizer's prefix of any text: Llama's `<|begin_of_text|>`, GLM-4's `[gMASK]<sop>`."""
    plain = encode_frame(tokenizer, "a")
    ids = _encode(tokenizer, "a", as_plain=False, add_special_tokens=True)
    return ids[: ids.index(plain[0])]


def _task(instruction: str) -> str:
    return f"Task Instruction: {instruction}\n\n"


def _round(number: int) -> str:
    return f"Round {number}\n\n"
