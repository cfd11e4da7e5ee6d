"""Constraints on answers: the forms of allowed answers, as plain data that an engine compiles for its vocabulary.

A form is a sequence of pieces: fixed text, or free text that ends at the first character of the following piece.
"""

from collections.abc import Sequence
from enum import Enum

import msgspec

from hindcast.core.domain.action import Action
from hindcast.core.domain.observation import Page
from hindcast.core.grammar.answer_parser import Dialect, format_answer

_PLACE = "\ue000"
"""Placeholder for free text while a call is formatted: a character of Unicode's private use area."""


class FreeText(Enum):
    """A piece of free text of any length, without control characters."""

    QUOTED = "quoted"
    """Inside double quotes, with quotes and backslashes escaped."""
    LINE = "line"
    """The rest of a line."""


Form = tuple[str | FreeText, ...]


class ActionChoice(msgspec.Struct, frozen=True, kw_only=True):
    """An action that may be chosen."""

    action: Action
    free: bool = False
    """Whether any argument is allowed."""


def forms_of(
    choices: Sequence[ActionChoice], page: Page, *, rationale: bool, dialect: Dialect = "webrl"
) -> tuple[Form, ...]:
    """Build the forms of the answers that choose one of the actions.

    Without `rationale` an answer is that of a demonstration (`format_answer`): a comment with the element, then the call; a
    comment may quote a line of the page before a message. With it the comment is free text, and the action follows from it:
    the two stages of LASER (arXiv 2309.08172) in one answer.
    """
    forms: dict[Form, None] = {}
    for choice in choices:
        action = msgspec.structs.replace(choice.action, argument=_PLACE) if choice.free else choice.action
        text = format_answer(action, page, dialect)
        call = _with_place(text.rpartition("\n")[2] if rationale else text, free=choice.free)
        if rationale:
            forms["# ", FreeText.LINE, "\n" + str(call[0]), *call[1:]] = None
            continue
        forms[call] = None
        if choice.free and choice.action.name == "exit":
            forms["# Note: ", FreeText.LINE, "\n" + str(call[0]), *call[1:]] = None
    return tuple(forms)


def _with_place(text: str, *, free: bool) -> Form:
    if not free:
        return (text,)
    before, _, after = text.rpartition(_PLACE)
    return before, FreeText.QUOTED, after
