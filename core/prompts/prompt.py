"""From instruction, earlier rounds and page to the token ids that the policy reads. Shape as in WebRL.

The first user turn carries the instruction; past rounds keep their answers and a stand-in for their page; the last
turn carries the page. What gives way when a prompt gets too long is its history form (`HISTORIES`). How turns stand in
it is its framing (`core.prompts.chat_frame`). Page, instruction and answers are data: text in them that looks like a special token
is encoded as plain text and can never close a turn.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from hindcast.core.errors import SettingsError
from hindcast.core.prompts.chat_frame import FramingName, Turns, encode_text, turns_of

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
    framing: FramingName = "chat/1",
    thinking: bool = False,
    picture: Sequence[int] = (),
) -> Prompt:
    """The prompt of the round after `answers` (oldest first), at most `max_tokens` long.

    `earlier_pages` are those of the latest past rounds, as text, oldest first; every other has its stand-in. They go
    before anything else does, the oldest first, while the page does not fit whole. Then the page is cut at its end; if
    that left it less than the share its `history` form grants, the earliest answers go first. The instruction, the last
    answers and `question`, which follows the page, always stay. `tokenizer` is a fast Hugging Face tokenizer with a
    chat template. `thinking`: whether answers are to begin with a thought, for templates that ask for one or for none.
    `picture`: tokens that stand for a picture of the page, before its text; they always stay, too, and pages of past
    rounds have none. Raises SettingsError when what must stay leaves no room at all.
    """
    turns = turns_of(tokenizer, framing, thinking=thinking)
    before, after = turns.around_page
    shown, in_full = list(answers), list(earlier_pages)
    granted_text = turns.cut(page_text, instruction, answers, _shown_pages(answers, in_full))
    while in_full and len(granted_text) < len(page_text):
        in_full.pop(0)
        granted_text = turns.cut(page_text, instruction, answers, _shown_pages(answers, in_full))
    page = encode_text(tokenizer, before + granted_text + after)
    closing = [*encode_text(tokenizer, question), *turns.closing] if question else turns.closing
    while True:
        head = [*_head(turns, instruction, shown, in_full), *picture]
        room = max_tokens - len(head) - len(closing)
        if in_full and room < len(page):
            in_full.pop(0)
            continue
        granted = min(len(page), int(HISTORIES[history].page_share * max_tokens))
        if len(shown) <= KEPT_ANSWERS or room >= granted:
            break
        shown.pop(0)
    tail = encode_text(tokenizer, after)
    if room <= len(tail):
        raise SettingsError(
            f"the instruction and the last {len(shown)} answers{' and the screenshot' if picture else ''} take {len(head)} "
            f"tokens, which leaves none of {max_tokens} for the page. Raise actors.max_prompt_tokens, or shorten the "
            f"instruction{', or lower actors.screenshot_width' if picture else ''}."
        )
    cut = (
        len(page) > room
        or len(granted_text) < len(page_text)
        or len(shown) < len(answers)
        or len(in_full) < len(earlier_pages)
    )
    if len(page) > room:
        page = [*encode_text(tokenizer, before + granted_text)[: room - len(tail)], *tail]
    return Prompt(ids=[*head, *page, *closing], truncated=cut)


def encode_answer(
    tokenizer: Any, answer: str, *, framing: FramingName = "chat/1", thinking: bool = False
) -> list[int]:
    """An answer as the policy samples it: its text and the end token. For demonstrations."""
    turns = turns_of(tokenizer, framing, thinking=thinking)
    return [*encode_text(tokenizer, turns.lead + answer), turns.end]


def _head(turns: Turns, instruction: str, answers: Sequence[str], in_full: Sequence[str]) -> list[int]:
    """Everything before the page; `in_full` are the pages of the last of the rounds."""
    return turns.head(instruction, answers, _shown_pages(answers, in_full))


def _shown_pages(answers: Sequence[str], in_full: Sequence[str]) -> list[str | None]:
    """For each round that had an answer its page, None: a stand-in."""
    stand_ins: list[str | None] = [None] * (len(answers) - len(in_full))
    return [*stand_ins, *in_full]
