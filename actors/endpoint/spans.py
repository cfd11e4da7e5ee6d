"""Client spans of requests to an endpoint, by the GenAI conventions: for judges, relabelers, generators and policies.

A repeated question has a span per request, all within the caller's span (`hindcast.judge`, `hindcast.relabel`,
`chat policy`). Texts of question and answer are content: only where `telemetry.content` allows them.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from opentelemetry.trace import SpanKind

from hindcast.actors.endpoint.completion import Completion
from hindcast.actors.telemetry.spans import as_json, chat_call, count_seconds, count_tokens, message
from hindcast.core import telemetry_names as names
from hindcast.events.tracing import Attribute, span

PROVIDER = "openai"
"""The interface's name in the conventions, also where another provider's server has it."""


@contextmanager
def request_span(
    base_url: str, body: Mapping[str, Any], *, limit: int, content: bool
) -> Iterator[Callable[[Completion], None]]:
    """Span of one request; call the yielded function with the completion. `limit`: largest number of requested tokens."""
    model = str(body["model"])
    address = urlsplit(base_url)
    call = chat_call(model, provider=PROVIDER)
    server: dict[str, Attribute] = {names.SERVER_ADDRESS: address.hostname or ""}
    if address.port is not None:
        server[names.SERVER_PORT] = address.port
    attributes: dict[str, Attribute] = {
        **call,
        **server,
        names.REQUEST_TEMPERATURE: float(body["temperature"]),
        names.REQUEST_MAX_TOKENS: limit,
    }
    if "seed" in body:
        attributes[names.REQUEST_SEED] = int(body["seed"])
    if content:
        attributes[names.INPUT_MESSAGES] = as_json(
            [message(chat_message["role"], chat_message["content"]) for chat_message in body["messages"]]
        )
    began = time.perf_counter()
    try:
        with span(f"{names.CHAT} {model}", attributes, kind=SpanKind.CLIENT) as open_span:

            def answered(completion: Completion) -> None:
                count_tokens(
                    {**call, **server}, prompt=completion.prompt_tokens, answer=completion.answer_tokens
                )
                if not open_span.is_recording():
                    return
                open_span.set_attribute(names.RESPONSE_MODEL, completion.model or model)
                open_span.set_attribute(names.FINISH_REASONS, (completion.finish,))
                open_span.set_attribute(names.INPUT_TOKENS, completion.prompt_tokens)
                open_span.set_attribute(names.OUTPUT_TOKENS, completion.answer_tokens)
                if content:
                    open_span.set_attribute(
                        names.OUTPUT_MESSAGES, as_json([message("assistant", completion.text)])
                    )

            yield answered
    finally:
        count_seconds({**call, **server}, time.perf_counter() - began)
