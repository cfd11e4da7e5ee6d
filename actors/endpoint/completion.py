"""The result of a question to an endpoint's model: an answer, or why there is none. Never an exception.

Invariant "Verdicts are facts about a judge": an unreachable model gives no verdict, which is no failure of the agent. So
outage and refusal are results of their own, with their cost.
"""

from collections.abc import Callable, Mapping
from typing import Any, Generic, Literal, TypeVar

import msgspec

from hindcast.core.ids import digest_hex
from hindcast.core.settings.endpoint import EndpointSettings
from hindcast.events.catalogue.consulted import Consulted

Value = TypeVar("Value")

Role = Literal["system", "user", "assistant"]
Trouble = Literal["outage", "refusal", "rejected", "malformed"]
"""`outage`: unreachable, overloaded or broken in all attempts; a later one may succeed. `refusal`: the model refused.
`rejected`: the server accepts no such request (key, model, length). `malformed`: the reply is no answer to the question.
"""

MILLION = 1_000_000


class Message(msgspec.Struct, frozen=True):
    """One turn of a conversation with a model."""

    role: Role
    content: str


class Answered(msgspec.Struct, Generic[Value], frozen=True, kw_only=True):
    """Result of a question that the model answered."""

    value: Value
    consulted: Consulted


class Unanswered(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a question without an answer: the trouble and the reason."""

    trouble: Trouble
    reason: str
    consulted: Consulted

    @property
    def may_pass(self) -> bool:
        """Whether asking later may help."""
        return self.trouble == "outage"


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """One answered request: text and token counts."""

    text: str
    model: str
    finish: str
    """`stop`, `length`, …, in the server's words."""
    prompt_tokens: int
    answer_tokens: int


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """The form of an answer, for the server."""

    name: str
    body: Mapping[str, Any]
    """JSON schema; its root is an object."""


class QuestionCost:
    """Counts the cost of one question while it is asked."""

    def __init__(self, settings: EndpointSettings, *, request: str, share: float = 1.0) -> None:
        """`share`: part of the settings' prices that is to be paid."""
        self._settings = settings
        self._share = share
        self._request = request
        self._model = settings.model
        self._answer = ""
        self._prompt_tokens = self._answer_tokens = 0
        self.tries = 0
        self.batched: list[str] = []
        """Digests of the requests that went through a batch."""

    def add(self, completion: Completion) -> None:
        """Count one more answered request."""
        self._model = completion.model or self._model
        self._answer = completion.text
        self._prompt_tokens += completion.prompt_tokens
        self._answer_tokens += completion.answer_tokens

    def total(self) -> Consulted:
        """The total in the form that events record."""
        prompt, answer = self._prompt_tokens, self._answer_tokens
        cost = prompt * self._settings.price_prompt + answer * self._settings.price_answer
        return Consulted(
            model=self._model,
            request=self._request,
            answer=self._answer,
            prompt_tokens=prompt,
            answer_tokens=answer,
            cost_usd=cost * self._share / MILLION if self.tries else 0.0,
            tries=self.tries,
        )


def request_digest(base_url: str, body: Mapping[str, Any]) -> str:
    """Identifies a request: sha256 of address and content, independent of the order of its fields."""
    return digest_hex(msgspec.json.encode([base_url, body], order="sorted"))


Read = Callable[[str], Value]
"""Parses an answer's text. Raises ValueError for an invalid one, with a message for the model."""


class TransientFailure(Exception):
    """A request failed, and a later one may succeed."""

    def __init__(self, reason: str, *, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.wait_s = wait_s
        """Pause that the server asked for; None: none."""


class QuestionFailed(Exception):
    """A question has no usable answer; carries the trouble."""

    def __init__(self, trouble: Trouble, reason: str, *, settled: bool = True) -> None:
        super().__init__(reason)
        self.trouble: Trouble = trouble
        self.settled = settled
        """False: a batch is still running that may answer after all."""
