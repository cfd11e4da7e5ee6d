"""What an outcome reward model reads (WebRL, arXiv 2411.02337): instruction, action history, final page, and the question.

Turns are those that the policy itself reads (`core.prompts.prompt`), so that a model which begins as a policy reads what it
knows; the last one shows the page that the episode ended on, and asks. The page is cut to fit, never the question.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from hindcast.core.domain.observation import Page
from hindcast.core.errors import ModelFileError
from hindcast.core.ids import digest_hex
from hindcast.core.prompts.chat_frame import encode_text
from hindcast.core.prompts.prompt import Prompt, build_prompt
from hindcast.core.prompts.rendering import RENDERERS

FORMAT = "orm/2"
"""Name and version of what is read; every change raises the version. `orm/1` read pages by `lines/1`, which lets a page forge
lines and element numbers."""
RENDERER = "lines/2"
QUESTION = "\n\nWas the task done? Answer YES or NO."
YES, NO = "YES", "NO"

PROMPT_DIGEST = digest_hex(msgspec.json.encode([FORMAT, RENDERER, QUESTION, YES, NO]))
"""Of the format, as the identity of the judge carries it."""


class AnswerIds(NamedTuple):
    """The tokens whose probabilities are compared: the first of each word."""

    yes: int
    no: int


def build_verdict_prompt(
    tokenizer: Any, *, instruction: str, answers: Sequence[str], page: Page, max_tokens: int
) -> Prompt:
    """The prompt about an episode that gave `answers` (oldest first) and ended on `page`, at most `max_tokens` long.

    Raises SettingsError when instruction, last answers and question leave no room for the page.
    """
    return build_prompt(
        tokenizer,
        instruction=instruction,
        answers=answers,
        page_text=RENDERERS[RENDERER](page),
        max_tokens=max_tokens,
        question=QUESTION,
    )


def answer_ids(tokenizer: Any) -> AnswerIds:
    """Where YES and NO stand in the vocabulary. Raises ModelFileError when they begin alike."""
    ids = AnswerIds(encode_text(tokenizer, YES)[0], encode_text(tokenizer, NO)[0])
    if ids.yes == ids.no:
        raise ModelFileError(
            f"the tokenizer begins {YES} and {NO} with the same token {ids.yes}, so that no model with it can tell "
            "them apart in one answer. Take the judge orm out of judge.judges, or use another policy.base."
        )
    return ids
