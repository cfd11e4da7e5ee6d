"""Parses chat completions of a server; fields that are not used are ignored.

Servers differ: fields are missing, null or of another type, and proxies answer 200 with a page. An unreadable response
counts as an outage of the server, not as a reply of the model.
"""

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import msgspec

from hindcast.actors.endpoint.completion import Completion
from hindcast.core.structs import decode_json

REFUSING = "content_filter"
"""Finish reason of an answer, and code of an error, when the provider's filter held it back."""


class _Message(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Answer(msgspec.Struct):
    choices: list[_Choice]
    model: str | None = None
    usage: _Usage | None = None


class MalformedCompletion(Exception):
    """The server's response is no chat completion."""


class CompletionRefused(Exception):
    """The model or its provider refused to answer. Carries the completion."""

    def __init__(self, reason: str, completion: Completion) -> None:
        super().__init__(reason)
        self.completion = completion


def read_completion(content: bytes) -> Completion:
    """Parse the first choice of a response.

    Raises:
        MalformedCompletion: it is no chat completion.
        CompletionRefused: its text is a refusal, or was filtered.
    """
    try:
        answer = decode_json(content, _Answer)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise MalformedCompletion(f"the server sent no chat completion: {error}") from None
    if not answer.choices:
        raise MalformedCompletion("the server sent a chat completion without a choice")
    choice, usage = answer.choices[0], answer.usage or _Usage()
    message = choice.message
    completion = Completion(
        text=message.content or message.refusal or "",
        model=answer.model or "",
        finish=choice.finish_reason or "",
        prompt_tokens=max(0, usage.prompt_tokens or 0),
        answer_tokens=max(0, usage.completion_tokens or 0),
    )
    if message.refusal:
        raise CompletionRefused(f"the model refused: {message.refusal}", completion)
    if completion.finish == REFUSING:
        raise CompletionRefused("the provider's filter held the answer back", completion)
    return completion


def wait_asked_for(header: str | None, *, now: datetime) -> float | None:
    """Seconds that a `Retry-After` header asks for; None: it is missing or unreadable.

    >>> wait_asked_for("2.5", now=datetime.now(UTC))
    2.5
    """
    if not header:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            retry_at = parsedate_to_datetime(header)
        except ValueError:
            return None
        seconds = (retry_at.replace(tzinfo=retry_at.tzinfo or UTC) - now).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else None
