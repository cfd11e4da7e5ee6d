"""From instruction, earlier answers and page to the token ids that the policy reads. Shape as in WebRL.

The first user turn carries the instruction; past rounds keep their answers and a stand-in for their page; the last
turn carries the page. Turns are framed by the tokenizer's own chat template. Page, instruction and answers are
data: text in them that looks like a special token is encoded as plain text and can never close a turn.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from core.errors import SettingsError

STAND_IN = "** Simplified html **"
"""What remains of the page of a past round."""

KEPT_ANSWERS = 3
"""Latest answers that are never dropped to make room for the page."""

PAGE_SHARE = 0.5
"""While more answers than `KEPT_ANSWERS` are shown, the page gets at least this share of the prompt if it needs it."""


class Prompt(msgspec.Struct, frozen=True):
    """What the policy reads."""

    ids: list[int]
    truncated: bool
    """Whether part of the page, or an early answer, was left out to fit."""


class _Frame(msgspec.Struct, frozen=True):
    """Token ids that the chat template puts around contents."""

    opening: tuple[int, ...]
    """Before the first user turn."""
    to_answer: tuple[int, ...]
    """Between a user turn and the answer: also what the prompt ends with."""
    to_user: tuple[int, ...]
    """Between an answer and the next user turn."""


def build_prompt(
    tokenizer: Any, *, instruction: str, answers: Sequence[str], page_text: str, max_tokens: int
) -> Prompt:
    """The prompt of the round after `answers` (oldest first), at most `max_tokens` long.

    The page is cut at its end to fit; if it got less than half of the prompt, the earliest answers go first. The
    instruction and the last answers always stay. `tokenizer` is a fast Hugging Face tokenizer with a chat template.
    Raises SettingsError when what must stay leaves no room at all.
    """
    frame = _frame_of(tokenizer)
    page = encode_text(tokenizer, page_text)
    shown = list(answers)
    while True:
        head = _head(tokenizer, frame, instruction, shown)
        room = max_tokens - len(head) - len(frame.to_answer)
        if len(shown) <= KEPT_ANSWERS or room >= min(len(page), int(PAGE_SHARE * max_tokens)):
            break
        shown.pop(0)
    if room <= 0:
        raise SettingsError(
            f"the instruction and the last {len(shown)} answers take {len(head)} tokens, which leaves none of "
            f"{max_tokens} for the page. Raise actors.max_prompt_tokens, or shorten the instruction."
        )
    ids = [*head, *page[:room], *frame.to_answer]
    return Prompt(ids=ids, truncated=len(page) > room or len(shown) < len(answers))


def encode_text(tokenizer: Any, text: str) -> list[int]:
    """Token ids of plain text: nothing in it is taken for a special token."""
    ids: list[int] = tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    return ids


def encode_answer(tokenizer: Any, answer: str) -> list[int]:
    """An answer as the policy samples it: its text and the end token. For demonstrations."""
    return [*encode_text(tokenizer, answer), int(tokenizer.eos_token_id)]


def _head(tokenizer: Any, frame: _Frame, instruction: str, answers: Sequence[str]) -> list[int]:
    ids = list(frame.opening)
    opening = f"Task Instruction: {instruction}\n\n"
    for round_number, answer in enumerate(answers):
        ids += encode_text(tokenizer, f"{opening}Round {round_number}\n\n{STAND_IN}")
        ids += frame.to_answer
        ids += encode_text(tokenizer, answer.strip())
        ids += frame.to_user
        opening = ""
    return ids + encode_text(tokenizer, f"{opening}Round {len(answers)}\n\n")


@lru_cache(maxsize=8)
def _frame_of(tokenizer: Any) -> _Frame:
    """Render the chat template once round marks and cut it at the marks."""
    marks = ("first-user-mark", "answer-mark", "second-user-mark")
    rendered: str = tokenizer.apply_chat_template(
        [
            {"role": "user", "content": marks[0]},
            {"role": "assistant", "content": marks[1]},
            {"role": "user", "content": marks[2]},
        ],
        tokenize=False,
        add_generation_prompt=True,
    )
    opening, _, rest = rendered.partition(marks[0])
    to_answer, _, rest = rest.partition(marks[1])
    to_user, _, closing = rest.partition(marks[2])
    return _Frame(
        opening=tuple(_encode_frame(tokenizer, opening)),
        to_answer=tuple(_encode_frame(tokenizer, closing or to_answer)),
        to_user=tuple(_encode_frame(tokenizer, to_user)),
    )


def _encode_frame(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids
