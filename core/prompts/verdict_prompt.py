"""Prompt of the outcome reward model (WebRL, arXiv 2411.02337): instruction, action history, final page, question.

Its turns are those of the policy's prompt (`core.prompts.prompt`), because the model is initialized from the policy. The
last turn has the final page and the question. The page is cut to fit, never the question.
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
"""Name and version: any change of the prompt needs a new version. `orm/1` rendered pages by `lines/1`, which lets a page
forge lines and element numbers."""
RENDERER = "lines/2"
QUESTION = "\n\nWas the task done? Answer YES or NO."
YES, NO = "YES", "NO"

PROMPT_DIGEST = digest_hex(msgspec.json.encode([FORMAT, RENDERER, QUESTION, YES, NO]))
"""Digest of the format, part of the judge's identity."""


class AnswerIds(NamedTuple):
    """First tokens of YES and NO, whose probabilities are compared."""

    yes: int
    no: int


def build_verdict_prompt(
    tokenizer: Any, *, instruction: str, answers: Sequence[str], page: Page, max_tokens: int
) -> Prompt:
    """Build the prompt of an episode with `answers` (oldest first) that ended on `page`, at most `max_tokens` long.

    Raises SettingsError if instruction, last answers and question leave no room for the page.
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
    """Find the first tokens of YES and NO. Raises ModelFileError if they are the same."""
    ids = AnswerIds(encode_text(tokenizer, YES)[0], encode_text(tokenizer, NO)[0])
    if ids.yes == ids.no:
        raise ModelFileError(
            f"the tokenizer begins {YES} and {NO} with the same token {ids.yes}, so that no model with it can tell "
            "them apart in one answer. Take the judge orm out of judge.judges, or use another policy.base."
        )
    return ids
