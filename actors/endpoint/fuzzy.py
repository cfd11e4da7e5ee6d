"""Whether an answer means the same as a reference, by a model behind an endpoint.

For evaluators that compare answers in words (WebArena, arXiv 2307.13854, `fuzzy_match`). An answer in part is none there,
but it is told apart here. Who could not be asked has said nothing: the evaluator's judgment is then undecided.
"""

import asyncio
from pathlib import Path
from typing import Literal

import msgspec

from actors.endpoint.asking import Answered, Unanswered
from actors.endpoint.client import Endpoint
from actors.endpoint.prompts import json_in, prompt_text, schema_of
from core.endpoint import EndpointSettings

Match = Literal["correct", "incorrect", "partially"]

PROMPT = prompt_text("fuzzy-1")


class _Said(msgspec.Struct, forbid_unknown_fields=True):
    reason: str
    match: Match


SCHEMA = schema_of(_Said, name="match")


async def ask_fuzzy_match(
    endpoint: Endpoint, *, question: str, reference: str, answer: str
) -> Answered[Match] | Unanswered:
    """Whether `answer` answers `question` as `reference` does."""
    messages = PROMPT.filled({"question": question, "reference": reference, "answer": answer})
    return await endpoint.ask(messages, _read, schema=SCHEMA)


def fuzzy_match(
    settings: EndpointSettings, *, question: str, reference: str, answer: str, memory: Path | None = None
) -> Answered[Match] | Unanswered:
    """The same for evaluators, which run in a thread of their own. Blocks.

    Raises:
        SettingsError: the settings name no server or no model.

    """

    async def ask() -> Answered[Match] | Unanswered:
        async with Endpoint(settings, memory=memory) as endpoint:
            return await ask_fuzzy_match(endpoint, question=question, reference=reference, answer=answer)

    return asyncio.run(ask())


def _read(text: str) -> Match:
    return msgspec.json.decode(json_in(text), type=_Said).match
