"""An engine with fixed answers in browser-use's form: it searches the shop, then says a price, half of the time the right one."""

import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hindcast.actors.engines.base import Constraint, Generation
from hindcast.core.domain.sampling import Sampling
from hindcast.core.errors import EngineFailed
from hindcast.core.models.engine import Engine, EngineContext, EngineTraits

LOGPROB = -0.5
WANTED = re.compile(r"What is the price of the cheapest (.+?)\?")
FIELD = re.compile(r"\[(\d+)\]<input name=q ")
BUTTON = re.compile(r"\[(\d+)\]<button />\s*Search")
OFFER = re.compile(r"<a />\s*([^\n$]+?)\s*\$([\d.,]+\d)")


class FixedAnswers:
    """A `PolicyEngine` that reads the page in browser-use's prompt."""

    def __init__(self, tokenizer: Any) -> None:
        self.version = 0
        self.tokenizer = tokenizer

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, constraint: Constraint | None = None
    ) -> Generation:
        """Answer with one action, or with the price."""
        right = bool(sampling.seed % 2)
        answer = json.dumps(reply(self.tokenizer.decode(prompt_ids), right=right))
        ids = [*self.tokenizer.encode(answer, add_special_tokens=False), self.tokenizer.eos_token_id]
        return Generation(
            token_ids=ids, logprobs=[LOGPROB] * len(ids), versions=[self.version] * len(ids), finish="stop"
        )

    async def adopt(self, version: int, weights: Path) -> None:
        """Take the number alone: the answers are fixed."""
        self.version = version

    async def close(self) -> None:
        """Nothing is open."""


def reply(prompt: str, *, right: bool) -> dict[str, Any]:
    """The answer to a prompt of browser-use, in the form of its `AgentOutput`; `right`: whether the price is the true one."""
    asked = WANTED.findall(prompt)
    page = prompt.rpartition("Interactive elements:")[2]
    field, button = FIELD.search(page), BUTTON.search(page)
    if not asked or field is None or button is None:
        raise EngineFailed(f"not the prompt of a page of the shop: {prompt[-1000:]}")
    wanted = asked[-1].split()
    if "Results" in page or f"value={' '.join(wanted)}" in page:
        prices = [price for name, price in OFFER.findall(page) if set(wanted) <= set(name.split())]
        text = min(prices, key=lambda price: float(price.replace(",", ""))) if right and prices else "nothing"
        actions = [{"done": {"text": text, "success": True, "files_to_display": []}}]
    else:
        actions = [
            {"input": {"index": int(field[1]), "text": " ".join(wanted), "clear": True}},
            {"click": {"index": int(button[1])}},
        ]
    notes = dict.fromkeys(("thinking", "evaluation_previous_goal", "memory", "next_goal"), "")
    return {**notes, "action": actions}


@asynccontextmanager
async def opened(context: EngineContext) -> AsyncIterator[FixedAnswers]:
    """Open it with the policy's own tokenizer."""
    from hindcast.core.models.tokenizer import load_tokenizer  # imports torch

    yield FixedAnswers(load_tokenizer(context.folder))


ENGINE = Engine(traits=EngineTraits(), open=opened)
