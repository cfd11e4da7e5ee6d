"""Questions for a judge endpoint where wordings must be compared by meaning; only a whole match counts.

They replace `llm_fuzzy_match` and `llm_ua_match` of the released evaluators, which ask GPT-4.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """Whether an answer means what the reference says."""

    kind: Literal["same", "impossible"]
    """`same`: is the answer right; `impossible`: is it the reason why the task cannot be done."""
    task: str
    """The task's instruction."""
    reference: str
    answer: str

    @property
    def words(self) -> str:
        """The question that the reference answers."""
        if self.kind == "impossible":
            return f"Why can this not be done: {self.task}"
        return self.task


Answers = Mapping[Question, bool]
"""A model's answers so far."""
NO_ANSWERS: Answers = {}
