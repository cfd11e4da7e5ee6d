"""Asks a model behind an endpoint whether an answer means the same as a reference.

It serves evaluators that compare answers in words (WebArena, arXiv 2307.13854, `fuzzy_match`). They accept no partial
answer, but this module distinguishes it. Without a reply, the evaluator's judgment is undecided.
"""

from typing import Literal

import msgspec

from hindcast.actors.endpoint.client import Endpoint
from hindcast.actors.endpoint.completion import Answered, Unanswered
from hindcast.actors.endpoint.prompts import json_in, prompt_text, schema_of

Match = Literal["correct", "incorrect", "partially"]

PROMPT = prompt_text("fuzzy-1")


class _Said(msgspec.Struct, forbid_unknown_fields=True):
    reason: str
    match: Match


SCHEMA = schema_of(_Said, name="match")


async def ask_fuzzy_match(
    endpoint: Endpoint, *, question: str, reference: str, answer: str
) -> Answered[Match] | Unanswered:
    """Ask whether `answer` answers `question` as `reference` does."""
    messages = PROMPT.filled({"question": question, "reference": reference, "answer": answer})
    return await endpoint.ask(messages, _read, schema=SCHEMA)


def _read(text: str) -> Match:
    return msgspec.json.decode(json_in(text), type=_Said).match
