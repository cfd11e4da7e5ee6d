"""The policy's prompt: from instruction, earlier rounds and page to token ids, in the shape of WebRL's.

The first user turn has the instruction, past rounds have their answers and a placeholder for their page, the last turn has
the page. The history form (`HISTORIES`) decides what is dropped when a prompt gets too long; the framing
(`core.prompts.chat_frame`) separates turns. Page, instruction and answers are data: text in them that looks like a special
token is encoded as plain text and can never close a turn.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from hindcast.core.errors import SettingsError
from hindcast.core.prompts.chat_frame import FramingName, Turns, encode_text, turns_of

KEPT_ANSWERS = 3
"""Number of latest answers that are never dropped for the page."""


class History(msgspec.Struct, frozen=True, kw_only=True):
    """A history form: how past rounds are shown."""

    page_share: float
    """Share of the prompt that the page gets if it needs it; the earliest answers are dropped for it, down to
    `KEPT_ANSWERS`."""
    bounded: bool
    """Whether only the latest answers are shown (`actors.history_answers`)."""


HISTORIES: dict[str, History] = {
    "webrl/1": History(page_share=0.5, bounded=True),
    "compressed/1": History(page_share=0.125, bounded=False),
}
"""`webrl/1`: the latest answers, of which early ones are dropped if the page needs half of the prompt. `compressed/1`:
dynamic context compression of WebAgent-R1 (arXiv 2505.16421, section 2.1): only pages are compressed, and all answers stay
unless they leave the page less than an eighth of the prompt. A change of what a form shows needs a new version."""


class Prompt(msgspec.Struct, frozen=True):
    """The prompt that the policy reads."""

    ids: list[int]
    """Token ids."""
    truncated: bool
    """Whether part of the page, an early answer, or an earlier page in full was left out to fit."""


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
    """Build the prompt of the round after `answers` (oldest first), at most `max_tokens` long.

    If it does not fit, the oldest of `earlier_pages` are dropped first, then the earliest answers while the page has less
    than the share that `history` grants; at last the page is cut at its end. Instruction, last answers, `question` and
    `picture` always stay.

    Args:
        tokenizer: a fast Hugging Face tokenizer with a chat template.
        instruction: the task's instruction.
        answers: all earlier answers to show.
        page_text: the rendered page.
        max_tokens: length limit of the prompt.
        history: name of the history form (`HISTORIES`).
        earlier_pages: rendered pages of the latest past rounds, oldest first; other past pages get the placeholder.
        question: text after the page.
        framing: how turns are separated.
        thinking: whether answers begin with a thought, for templates with a thinking mode.
        picture: tokens of the page's screenshot, before its text. Past pages have none.

    Raises:
        SettingsError: what must stay leaves no room for the page.
    """
    turns = turns_of(tokenizer, framing, thinking=thinking)
    before, after = turns.around_page
    kept_answers, in_full = list(answers), list(earlier_pages)
    granted_text = turns.cut(page_text, instruction, answers, _shown_pages(answers, in_full))
    while in_full and len(granted_text) < len(page_text):
        in_full.pop(0)
        granted_text = turns.cut(page_text, instruction, answers, _shown_pages(answers, in_full))
    page = encode_text(tokenizer, before + granted_text + after)
    closing = [*encode_text(tokenizer, question), *turns.closing] if question else turns.closing
    while True:
        head = [*_head(turns, instruction, kept_answers, in_full), *picture]
        room = max_tokens - len(head) - len(closing)
        if in_full and room < len(page):
            in_full.pop(0)
            continue
        granted = min(len(page), int(HISTORIES[history].page_share * max_tokens))
        if len(kept_answers) <= KEPT_ANSWERS or room >= granted:
            break
        kept_answers.pop(0)
    tail = encode_text(tokenizer, after)
    if room <= len(tail):
        raise SettingsError(
            f"the instruction and the last {len(kept_answers)} answers{' and the screenshot' if picture else ''} take {len(head)} "
            f"tokens, which leaves none of {max_tokens} for the page. Raise actors.max_prompt_tokens, or shorten the "
            f"instruction{', or lower actors.screenshot_width' if picture else ''}."
        )
    cut = (
        len(page) > room
        or len(granted_text) < len(page_text)
        or len(kept_answers) < len(answers)
        or len(in_full) < len(earlier_pages)
    )
    if len(page) > room:
        page = [*encode_text(tokenizer, before + granted_text)[: room - len(tail)], *tail]
    return Prompt(ids=[*head, *page, *closing], truncated=cut)


def encode_answer(
    tokenizer: Any, answer: str, *, framing: FramingName = "chat/1", thinking: bool = False
) -> list[int]:
    """Encode a demonstration's answer as the policy would sample it: its text and the end token."""
    turns = turns_of(tokenizer, framing, thinking=thinking)
    return [*encode_text(tokenizer, turns.lead + answer), turns.end]


def _head(turns: Turns, instruction: str, answers: Sequence[str], in_full: Sequence[str]) -> list[int]:
    """Encode everything before the page; `in_full` are the pages of the latest past rounds."""
    return turns.head(instruction, answers, _shown_pages(answers, in_full))


def _shown_pages(answers: Sequence[str], in_full: Sequence[str]) -> list[str | None]:
    """Return the page of each past round; None: the placeholder."""
    stand_ins: list[str | None] = [None] * (len(answers) - len(in_full))
    return [*stand_ins, *in_full]
