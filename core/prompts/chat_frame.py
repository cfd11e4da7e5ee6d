"""How turns stand in a prompt: the token ids round instruction, pages and answers. Named, versioned, recorded.

- `chat/1`: by the model's own chat template, rendered once round marks and cut at the marks, so that its special tokens
  come in exactly once and contents never pass through it: some templates trim them or take thoughts out of them.
- `webrl/1`: as WebRL's published checkpoints (Llama-3.1-8B, GLM-4-9B) read them (THUDM/WebRL, `scripts/process_data.py`
  and the template `llama3_web` of its LLaMA-Factory): one text with role marks in it, after what the tokenizer itself
  puts before a text. The instruction stands in for the page of round 0.
- `webrl/2`: the same, with a long page cut by characters, as that code cuts it before anything is cut by tokens.

Contents are data: `encode_text` gives no token in them that could open or close a turn.
"""

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from typing import Any, Literal, Protocol

import msgspec

from hindcast.core.errors import ModelFileError

FramingName = Literal["chat/1", "webrl/1", "webrl/2"]

STAND_IN = "** Simplified html **"
"""What remains of the page of a past round."""

WEBRL_END = "<|eot_id|>"
WEBRL_ROLE = "<|start_header_id|>{}<|end_header_id|>"
WEBRL_CHARS = 16384 - 512
"""Characters of past rounds and page together (`format_prompt`)."""
_WEBRL_MARKS = (WEBRL_END, *WEBRL_ROLE.split("{}"))

_MARKS = ("first-user-mark", "answer-mark", "second-user-mark")
_TODAY = datetime(2024, 7, 26)
"""What templates that show a date are told: prompts must not depend on the day they are made on."""
_FAMILIES = {
    "<|im_start|>": "chatml",
    "<|start_header_id|>": "llama3",
    "[gMASK]": "glm4",
    "[INST]": "mistral",
    "<start_of_turn>": "gemma",
}
"""A mark of a family's template, and what its turns are called in the log."""


class ChatFrame(msgspec.Struct, frozen=True):
    """What a chat template puts round contents."""

    opening: tuple[int, ...]
    """Before the first user turn."""
    to_answer: tuple[int, ...]
    """After the last user turn: what the prompt ends with."""
    to_past_answer: tuple[int, ...]
    """Between a user turn and an answer that was given."""
    to_user: tuple[int, ...]
    """Between an answer and the next user turn."""
    lead: str
    """Text that an answer begins with in its turn, beyond `to_answer`: GLM-4's line break."""
    name: str
    """Family and digest, such as `chatml@1f0c9a52`: equal names, equal frames."""


class Turns(Protocol):
    """Contents in their frame; all ids as the policy reads them."""

    around_page: tuple[str, str]
    """Text before and after the page in its turn."""
    closing: list[int]
    """What the prompt ends with, after the page and what stands around it."""
    lead: str
    """Text that a demonstrated answer begins with."""
    end: int
    """The token that a demonstrated answer ends with."""

    def head(self, instruction: str, answers: Sequence[str], pages: Sequence[str | None]) -> list[int]:
        """Everything before the page; `pages` of the rounds that had `answers`, None: its stand-in."""
        ...

    def cut(self, page: str, instruction: str, answers: Sequence[str], pages: Sequence[str | None]) -> str:
        """As much of the page's text as the framing itself grants, whatever tokens it takes."""
        ...


class ChatTurns:
    """`chat/1`."""

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
            shown = STAND_IN if page is None else page
            ids += encode_text(self._tokenizer, f"{opening}{_round(number)}{shown}")
            ids += self._frame.to_past_answer
            ids += encode_text(self._tokenizer, answer.strip())
            ids += self._frame.to_user
            opening = ""
        return ids + encode_text(self._tokenizer, f"{opening}{_round(len(answers))}")

    def cut(self, page: str, instruction: str, answers: Sequence[str], pages: Sequence[str | None]) -> str:
        """All of it: tokens alone are counted."""
        return page


class WebrlTurns:
    """`webrl/1`, and with `max_chars` `webrl/2`. Role marks that are no special tokens of a tokenizer (GLM-4's) are cut into tokens with the text after
    them."""

    lead = ""

    def __init__(self, tokenizer: Any, *, max_chars: int | None) -> None:
        known = tokenizer.get_vocab()
        if WEBRL_END not in known:
            raise ModelFileError(
                f"actors.framing = 'webrl/…' closes turns by {WEBRL_END}, which this model's tokenizer does not know. WebRL's "
                "published checkpoints do; for any other model leave actors.framing at 'chat/1'."
            )
        self._tokenizer = tokenizer
        self._max_chars = max_chars
        self._opening = _own_prefix(tokenizer)
        self.end = int(known[WEBRL_END])
        are_tokens = WEBRL_ROLE.partition("{}")[0] in known
        self._to_user, self._user = self._role("user", are_tokens=are_tokens)
        self._to_answer, self._assistant = self._role("assistant", are_tokens=are_tokens)
        self.around_page = (f"{self._user}\n", "\n\n")
        self.closing = [*self._to_answer, *encode_text(tokenizer, f"{self._assistant}\n")]

    def _role(self, role: str, *, are_tokens: bool) -> tuple[list[int], str]:
        """What opens a turn: as token ids, and what of it begins the text of the turn."""
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
        """What past rounds leave of `max_chars`, their marks counted as they are written.

        Where past rounds alone are longer, the released code cuts as many characters from the page's end as they are too
        long: a slice with a negative end. So does this, unless it would leave nothing: then the page stays whole, since
        tokens are counted later and the earliest answers give way to it.
        """
        if self._max_chars is None:
            return page
        user, assistant = (WEBRL_END + WEBRL_ROLE.format(role) for role in ("user", "assistant"))
        past = 0
        for number, (shown, answer) in enumerate(zip(pages, answers, strict=True)):
            stand_in = STAND_IN if number else instruction
            content = stand_in if shown is None else shown
            past += len(f"{_round(number)}{user}\n{content}\n\n{assistant}\n{answer}\n\n")
        if past + len(page) <= self._max_chars:
            return page
        return page[: self._max_chars - past] or page


@lru_cache(maxsize=16)
def turns_of(tokenizer: Any, framing: FramingName = "chat/1", *, thinking: bool = False) -> Turns:
    """The turns of a framing. `thinking`: whether templates that ask a model to think, or not to, ask it to."""
    if framing == "chat/1":
        return ChatTurns(tokenizer, thinking=thinking)
    return WebrlTurns(tokenizer, max_chars=WEBRL_CHARS if framing == "webrl/2" else None)


def encode_text(tokenizer: Any, text: str) -> list[int]:
    """Token ids of plain text: nothing in it is taken for a special token, nor for one that a turn is framed by."""
    ids: list[int] = tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    kept_out = _kept_out(tokenizer)
    if kept_out.keys().isdisjoint(ids):
        return ids
    # tokens that are not declared special are not split by tokenizers: cut the text within each, after its first letter
    within = re.compile(
        "|".join(f"(?<={re.escape(text[0])})(?={re.escape(text[1:])})" for text in kept_out.values() if text)
    )
    parts = (
        tokenizer(part, add_special_tokens=False, split_special_tokens=True) for part in within.split(text)
    )
    return [token for part in parts for token in part["input_ids"] if token not in kept_out]


def encode_frame(tokenizer: Any, text: str) -> list[int]:
    """Token ids of a frame's text, its special tokens being such."""
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


@lru_cache(maxsize=16)
def chat_frame(tokenizer: Any, *, thinking: bool = False) -> ChatFrame:
    """Render the chat template once round marks and cut it at the marks. Raises ModelFileError when it lacks one."""
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
    """User and assistant in turn through the chat template, up to where an answer begins. The same on every day."""
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
    """The token that closes an assistant's turn: the one that the chat template puts there, else the tokenizer's end."""
    after = chat_frame(tokenizer).to_user[:1]
    closes = bool(after) and after[0] in tokenizer.added_tokens_decoder
    return int(after[0] if closes else tokenizer.eos_token_id)


@lru_cache(maxsize=16)
def _kept_out(tokenizer: Any) -> dict[int, str]:
    """Tokens that text never comes to, and their texts: special ones, and added ones that frame turns, be it by this
    tokenizer's own template or by `webrl/1`, whose marks the template of a folder need not have.
    """
    frame = chat_frame(tokenizer)
    framing = {*frame.opening, *frame.to_past_answer, *frame.to_user}
    return {
        number: token.content
        for number, token in tokenizer.added_tokens_decoder.items()
        if token.special or number in framing or token.content in _WEBRL_MARKS
    }


def _own_prefix(tokenizer: Any) -> list[int]:
    """What a tokenizer puts before any text: Llama's `<|begin_of_text|>`, GLM-4's `[gMASK]<sop>`."""
    plain = encode_frame(tokenizer, "a")
    whole: list[int] = tokenizer("a")["input_ids"]
    return whole[: whole.index(plain[0])]


def _task(instruction: str) -> str:
    return f"Task Instruction: {instruction}\n\n"


def _round(number: int) -> str:
    return f"Round {number}\n\n"
