"""Metrics of every model call: tokens and seconds, by the GenAI conventions."""

import json

from opentelemetry import metrics

from hindcast.core import telemetry_names as names
from hindcast.events.tracing import SCOPE, Attribute

Call = dict[str, Attribute]
"""Attributes of every measurement of a call."""

_meter = metrics.get_meter(SCOPE)
_tokens = _meter.create_histogram(names.TOKEN_USAGE, "{token}", "Tokens of a model's call")
_seconds = _meter.create_histogram(names.OPERATION_DURATION, "s", "Duration of a model's call")


def chat_call(model: str, *, provider: str) -> Call:
    """Attributes of a chat with a model."""
    return {names.OPERATION: names.CHAT, names.REQUEST_MODEL: model, names.PROVIDER: provider}


def count_tokens(call: Call, *, prompt: int, answer: int) -> None:
    """Count the tokens that one call read and wrote."""
    _tokens.record(prompt, {**call, names.TOKEN_TYPE: "input"})
    _tokens.record(answer, {**call, names.TOKEN_TYPE: "output"})


def count_seconds(call: Call, seconds: float) -> None:
    """Record the duration of one call."""
    _seconds.record(seconds, call)


def message(role: str, text: str) -> dict[str, object]:
    """One message in the form of the conventions."""
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def as_json(messages: list[dict[str, object]]) -> str:
    """Messages as the value of an attribute."""
    return json.dumps(messages, ensure_ascii=False)
