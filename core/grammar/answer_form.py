"""The form of an answer: the action alone, or a thought before it.

    plain      # Element: Brass lamp [7]
               do(action="Click", element="7")

    thinking   <think>The link Brass lamp [7] is what the task names.</think>
               <answer># Element: Brass lamp [7]
               do(action="Click", element="7")</answer>

The thinking form is that of WebAgent-R1 (arXiv 2505.16421). An answer in the wrong form is a `ParseFailure`.
"""

import re
from collections.abc import Sequence
from typing import Any, Literal

from hindcast.core.domain.action import Action, ParseFailure
from hindcast.core.domain.observation import Page
from hindcast.core.grammar.answer_parser import parse_answer

AnswerForm = Literal["plain", "thinking"]

_END_OF_THOUGHT = "</think>"
_THINKING = re.compile(r"\s*<think>(?P<thought>.*?)</think>\s*<answer>(?P<answer>.*)</answer>\s*", re.DOTALL)
_TAG = re.compile(r"</?(?:think|answer)>")


def parse_form(text: str, form: AnswerForm, page: Page | None = None) -> Action | ParseFailure:
    """Parse an answer in this form, given for a page."""
    if form == "plain":
        return parse_answer(text, page)
    found = _THINKING.fullmatch(text)
    if found is None:
        return ParseFailure(reason="expected <think>…</think><answer>…</answer> and nothing else")
    return parse_answer(found["answer"], page)


def put_in_form(answer: str, form: AnswerForm, *, thought: str = "") -> str:
    """Put a demonstration's answer into this form, with its thought if the form has one.

    >>> put_in_form("exit()", "thinking", thought="All is done.")
    '<think>All is done.</think>\\n<answer>exit()</answer>'
    """
    if form == "plain":
        return answer
    return f"<think>{_TAG.sub(' ', thought)}</think>\n<answer>{answer}</answer>"


def split_form(text: str) -> tuple[str, str]:
    """Split a text in the thinking form into thought and answer; any other text is all answer.

    >>> split_form("<think>All is done.</think>\\n<answer>exit()</answer>")
    ('All is done.', 'exit()')
    """
    found = _THINKING.fullmatch(text)
    return ("", text) if found is None else (found["thought"], found["answer"])


def first_answer_token(tokenizer: Any, token_ids: Sequence[int]) -> int:
    """Find the index of the first token after the closed thought; 0 without one  # token_ids: [tokens].

    Bisects over prefixes, so that it decodes only a logarithmic number of times.
    """
    if _END_OF_THOUGHT not in tokenizer.decode(token_ids, skip_special_tokens=True):
        return 0
    low, high = 1, len(token_ids)
    while low < high:
        middle = (low + high) // 2
        if _END_OF_THOUGHT in tokenizer.decode(token_ids[:middle], skip_special_tokens=True):
            high = middle
        else:
            low = middle + 1
    return low
