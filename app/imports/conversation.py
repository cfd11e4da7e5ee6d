"""A conversation of a model with its surroundings, as another system recorded it."""

from typing import Any

import msgspec

from hindcast.actors.episodes.answerers import NO_VERSION
from hindcast.core.domain.evidence import Evidence
from hindcast.core.domain.task import Task
from hindcast.events.catalogue.episode import EndReason


class Turn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One answer of the model."""

    new: tuple[dict[str, Any], ...]
    """Messages since the last answer, in OpenAI's format with their content as text."""
    answer: dict[str, Any]
    """The assistant's message."""
    restarts: bool = False
    """Whether `new` is the whole prompt, because the messages before it were changed or dropped."""
    prompt_ids: tuple[int, ...] = ()
    """Token ids of the prompt, by the tokenizer of the model that was recorded; empty: unknown."""
    action_ids: tuple[int, ...] = ()
    """Token ids that the model sampled; empty: unknown."""
    logprobs: tuple[float, ...] = ()
    """Log-probability of each sampled token; empty: unknown."""

    @property
    def text(self) -> str:
        """The answer with its calls of tools, written as Qwen's and Hermes' models write them."""
        calls = [
            f'<tool_call>\n{{"name": {msgspec.json.encode(call["function"]["name"]).decode()}, '
            f'"arguments": {call["function"]["arguments"]}}}\n</tool_call>'
            for call in self.answer.get("tool_calls", ())
        ]
        return "\n".join([*([self.answer["content"]] if self.answer["content"] else []), *calls])


class Conversation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A conversation and how it ended. Its JSON without the defaults identifies the episode."""

    task: Task
    turns: tuple[Turn, ...]
    rest: tuple[dict[str, Any], ...]
    """Messages after the last answer."""
    reason: EndReason
    failure: str
    """Why it does not count, such as an error of the sandbox; empty: it counts."""
    evidence: Evidence
    duration_ms: float
    group: str = ""
    """Name of its group in the recorded run; empty: it is compared with no other."""
    member: int = 0
    """Index within its group."""
    group_size: int = 1
    version: int = NO_VERSION
    """Policy version of the recorded run that sampled the answers; -1: unknown."""
