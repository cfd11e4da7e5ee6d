"""From instruction, earlier rounds and page to the token ids that the policy reads. Shape as in WebRL.

The first user turn carries the instruction; past rounds keep their answers and a stand-in for their page; the last
turn carries the page. What gives way when a prompt gets too long is its history form (`HISTORIES`). Turns are framed by
the tokenizer's own chat template. Page, instruction and answers are data: text in them that looks like a special token
is encoded as plain text and can never close a turn.
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


class History(msgspec.Struct, frozen=True, kw_only=True):
    """How past rounds are shown."""

    page_share: float
    """While more answers than `KEPT_ANSWERS` are shown, the page gets at least this share of the prompt if it needs it;
    the earliest answers go for it."""
    bounded: bool
    """Whether only the latest answers are shown at all, as many as the actor's settings say."""


HISTORIES: dict[str, History] = {
    "webrl/1": History(page_share=0.5, bounded=True),
    "compressed/1": History(page_share=0.125, bounded=False),
}
"""`webrl/1`: the latest answers, and the page before the early ones among them. `compressed/1`: dynamic context compression
of WebAgent-R1 (arXiv 2505.16421, section 2.1): only pages are compressed, all answers stay, unless they left the page less
than an eighth of the prompt. Changing what a form shows means a new version."""


class Prompt(msgspec.Struct, frozen=True):
    """What the policy reads."""

    ids: list[int]
    truncated: bool
    """Whether part of the page, an early answer, or an earlier page that was to be shown in full was left out to fit."""


class _Frame(msgspec.Struct, frozen=True):
    """Token ids that the chat template puts around contents."""

    opening: tuple[int, ...]
    """Before the first user turn."""
    to_answer: tuple[int, ...]
    """Between a user turn and the answer: also what the prompt ends with."""
    to_user: tuple[int, ...]
    """Between an answer and the next user turn."""


def build_prompt(
    tokenizer: Any,
    *,
    instruction: str,
    answers: Sequence[str],
    page_text: str,
    max_tokens: int,
    history: str = "webrl/1",
    earlier_pages: Sequence[str] = (),
    question: str = "",
) -> Prompt:
    """The prompt of the round after `answers` (oldest first), at most `max_tokens` long.

    `earlier_pages` are those of the latest past rounds, as text, oldest first; every other has its stand-in. They go
    before anything else does, the oldest first, while the page does not fit whole. Then the page is cut at its end; if
    that left it less than the share its `history` form grants, the earliest answers go first. The instruction, the last
    answers and `question`, which follows the page, always stay. `tokenizer` is a fast Hugging Face tokenizer with a chat template.
    Raises SettingsError when what must stay leaves no room at all.
    """
    frame = _frame_of(tokenizer)
    page = encode_text(tokenizer, page_text)
    closing = [*encode_text(tokenizer, question), *frame.to_answer] if question else list(frame.to_answer)
    shown, in_full = list(answers), list(earlier_pages)
    while True:
        head = _head(tokenizer, frame, instruction, shown, in_full)
        room = max_tokens - len(head) - len(closing)
        if in_full and room < len(page):
            in_full.pop(0)
            continue
        granted = min(len(page), int(HISTORIES[history].page_share * max_tokens))
        if len(shown) <= KEPT_ANSWERS or room >= granted:
            break
        shown.pop(0)
    if room <= 0:
        raise SettingsError(
            f"the instruction and the last {len(shown)} answers take {len(head)} tokens, which leaves none of "
            f"{max_tokens} for the page. Raise actors.max_prompt_tokens, or shorten the instruction."
        )
    ids = [*head, *page[:room], *closing]
    cut = len(page) > room or len(shown) < len(answers) or len(in_full) < len(earlier_pages)
    return Prompt(ids=ids, truncated=cut)


def encode_text(tokenizer: Any, text: str) -> list[int]:
    """Token ids of plain text: nothing in it is taken for a special token."""
    ids: list[int] = tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    return ids


def encode_answer(tokenizer: Any, answer: str) -> list[int]:
    """An answer as the policy samples it: its text and the end token. For demonstrations."""
    return [*encode_text(tokenizer, answer), int(tokenizer.eos_token_id)]


def _head(
    tokenizer: Any, frame: _Frame, instruction: str, answers: Sequence[str], in_full: Sequence[str]
) -> list[int]:
    """Everything before the page; `in_full` are the pages of the last of the rounds."""
    ids = list(frame.opening)
    opening = f"Task Instruction: {instruction}\n\n"
    pages = [STAND_IN] * (len(answers) - len(in_full)) + list(in_full)
    for round_number, (page, answer) in enumerate(zip(pages, answers, strict=True)):
        ids += encode_text(tokenizer, f"{opening}Round {round_number}\n\n{page}")
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
