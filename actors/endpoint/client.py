"""The client: asks an OpenAI-compatible server one question, with retries, until it is answered or cannot be.

    ask ── cached? ──> answer
     ├──> batch (`actors.endpoint.batches`, where `endpoint.batch`) ──> read ──> answer
     └──> turn (pace) ──> request ──> completion ──> read ──> answer
              ^  later, while the server is unreachable       └──> once more, if the form of the answer is wrong

It waits for a turn (`actors.endpoint.rate_limit`) and for the server (`endpoint.timeout_s` per request, `endpoint.retries`
further ones with growing pauses, or when the server says). Failures of server and model raise nothing: see
`actors.endpoint.completion`.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Self

import msgspec
import structlog

from hindcast.actors.endpoint.answer_cache import AnswerCache
from hindcast.actors.endpoint.batch_wire import BatchLine, NotAnswered, said_in
from hindcast.actors.endpoint.batches import Batches
from hindcast.actors.endpoint.chat_wire import (
    REFUSING,
    CompletionRefused,
    MalformedCompletion,
    read_completion,
    wait_asked_for,
)
from hindcast.actors.endpoint.completion import (
    Answered,
    Completion,
    Message,
    QuestionCost,
    QuestionFailed,
    Read,
    Schema,
    TransientFailure,
    Unanswered,
    Value,
    request_digest,
)
from hindcast.actors.endpoint.rate_limit import LONGEST_HOLD_S, RateLimit
from hindcast.actors.endpoint.spans import request_span
from hindcast.actors.episodes.time_limit import uncounted
from hindcast.core.errors import SettingsError
from hindcast.core.settings.endpoint import EndpointSettings

REPAIRS = 1
"""Further requests when an answer has the wrong form; the model gets the error message."""
PASSING = frozenset({408, 409, 425, 429})
"""Temporary statuses below 500."""
OK = 200
QUOTA = "insufficient_quota"
"""Code of a 429 that waiting does not change."""
NO_KEY = "none"
"""Sent where no key is set: the client requires one, and would take another provider's from the environment."""
MOST_SHOWN = 300
"""Characters of a server's own words in a reason."""
BATCHES = "batches"
"""Folder of the cache that holds the batches in progress."""

logger = structlog.get_logger(__name__)


class Endpoint:
    """Asks one server; an async context manager, used within one event loop."""

    def __init__(
        self,
        settings: EndpointSettings,
        *,
        memory: Path | None = None,
        content: bool = False,
        environment: Mapping[str, str] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random: Random | None = None,
    ) -> None:
        """`memory`: folder of cached answers. `content`: whether traces contain texts. `random` spreads the retries of several
        processes.

        Raises:
            SettingsError: `endpoint.base_url` or `endpoint.model` is empty.
        """
        for name in ("base_url", "model"):
            if not getattr(settings, name):
                raise SettingsError(
                    f"endpoint.{name} is empty, and something asks the endpoint. Set it, for instance: --set "
                    "endpoint.base_url=http://127.0.0.1:8000/v1 --set endpoint.model=NAME"
                )
        self.settings = settings
        self._content = content
        self._memory = AnswerCache(memory if settings.remembered else None)
        self._kept_in = memory / BATCHES if settings.batch and memory is not None else None
        self._batches: Batches | None = None
        self._environment = os.environ if environment is None else environment
        self._sleep = sleep
        self._random = random or Random()
        self._key = ""
        self._client: Any = None
        self._pace: RateLimit | None = None

    async def __aenter__(self) -> Self:
        """Open the client; loads the package `openai`.

        Raises:
            SettingsError: the key cannot be sent.
        """
        from openai import AsyncOpenAI

        settings = self.settings
        # a trailing newline, as in files, cannot be sent, and the error message would show the whole header
        self._key = self._environment.get(settings.key_variable, "").strip()
        if not (self._key.isascii() and self._key.isprintable()):
            raise SettingsError(
                f"the key in {settings.key_variable} (endpoint.key_variable) holds characters that no header can"
            )
        self._pace = RateLimit(
            at_once=settings.at_once,
            per_minute=settings.requests_per_minute,
            clock=asyncio.get_running_loop().time,
            sleep=self._sleep,
        )
        self._client = AsyncOpenAI(
            base_url=settings.base_url,
            api_key=self._key or NO_KEY,
            timeout=settings.timeout_s,
            max_retries=0,  # our own retries count the attempts, keep the pace and stop all requests where the server asks for it
        )
        if self._kept_in is not None:
            self._batches = await Batches(
                self._client,
                settings,
                folder=self._kept_in,
                memory=self._memory,
                call=self._call_batch_api,
                sleep=self._sleep,
            ).__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        if self._batches is not None:
            await self._batches.__aexit__(kind, error, trace)
        await self._client.close()

    async def ask(
        self,
        messages: Sequence[Message],
        parse: Read[Value],
        *,
        schema: Schema | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        seed: int | None = None,
    ) -> Answered[Value] | Unanswered:
        """Ask, and parse the answer. `schema`: the form that `parse` wants; the others default to the settings'.

        An answer that `parse` accepts is cached by its question's digest.
        """
        body = self._body(messages, schema, temperature=temperature, max_tokens=max_tokens, seed=seed)
        digest = request_digest(self.settings.base_url, body)
        share = 1.0 if self._batches is None else self.settings.batch_share
        bill = QuestionCost(self.settings, request=digest, share=share)
        remembered = await asyncio.to_thread(self._memory.find, digest)
        if remembered is not None:
            with suppress(
                QuestionFailed
            ):  # stored by another version that read it otherwise: it is asked again
                value = _parse(remembered, parse)
                bill.add(remembered)
                return Answered(value=value, consulted=bill.total())
            await asyncio.to_thread(self._memory.forget, digest)  # or a batch would count it as answered
        try:
            completion, value = await self._answer(body, parse, bill)
        except QuestionFailed as failed:
            logger.warning("the endpoint gave no answer", trouble=failed.trouble, reason=str(failed))
            if failed.settled:
                await self._settle(bill)
            return Unanswered(trouble=failed.trouble, reason=str(failed), consulted=bill.total())
        is_new = await asyncio.to_thread(self._memory.keep, digest, completion)
        await self._settle(bill, first=is_new)
        return Answered(value=value, consulted=bill.total())

    async def _settle(self, bill: QuestionCost, *, first: bool | None = None) -> None:
        """Settle the batched requests of a question. `first`: whether this process cached the answer first (True), another that
        waited for it too (False), or none did (None). One of them pays.
        """
        settled = []
        for request in bill.batched:
            assert self._batches is not None
            settled.append(await self._batches.settle(request, remembered=first is not None))
        if settled and not (any(settled) if first is None else first):
            bill.tries = 0

    def _body(
        self,
        messages: Sequence[Message],
        schema: Schema | None,
        *,
        temperature: float | None,
        max_tokens: int | None,
        seed: int | None,
    ) -> dict[str, Any]:
        settings = self.settings
        body: dict[str, Any] = {
            "model": settings.model,
            "messages": [msgspec.to_builtins(message) for message in messages],
            "temperature": settings.temperature if temperature is None else temperature,
            settings.limit_field: max_tokens or settings.max_tokens,
        }
        if seed is not None:
            body["seed"] = seed
        if schema is not None and settings.structured == "json_schema":
            form = {"name": schema.name, "schema": schema.body, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        elif schema is not None and settings.structured == "json_object":
            body["response_format"] = {"type": "json_object"}
        return body

    async def _answer(
        self, body: Mapping[str, Any], parse: Read[Value], bill: QuestionCost
    ) -> tuple[Completion, Value]:
        """An answer in the requested form. Raises QuestionFailed."""
        request = dict(body)
        for repair in range(REPAIRS + 1):
            completion = await self._completion(request, bill)
            try:
                return completion, _parse(completion, parse)
            except QuestionFailed as failed:
                if repair == REPAIRS:
                    raise
                rejected = {"role": "assistant", "content": completion.text or "-"}
                repair_request = {
                    "role": "user",
                    "content": f"{failed}. Answer again, in the form asked for, and nothing else.",
                }
                request["messages"] = [*body["messages"], rejected, repair_request]
        raise AssertionError("the last repair returns or raises")

    async def _completion(self, body: Mapping[str, Any], bill: QuestionCost) -> Completion:
        """The server's completion of one request, alone or in a batch. Raises QuestionFailed, CompletionRefused."""

        async def send() -> Completion:
            bill.tries += 1
            return await self._request(body)

        try:
            if self._batches is not None:
                completion = await self._batched(self._batches, body, bill)
            else:
                completion = await self._with_retries(send)
        except CompletionRefused as refused:
            bill.add(refused.completion)
            raise QuestionFailed("refusal", str(refused)) from None
        bill.add(completion)
        return completion

    async def _batched(self, batches: Batches, body: Mapping[str, Any], bill: QuestionCost) -> Completion:
        """A batch's completion of one request. Raises QuestionFailed, CompletionRefused."""
        question = request_digest(self.settings.base_url, body)
        bill.batched.append(question)
        bill.tries += 1
        try:
            with uncounted():  # a day in a batch is no slowness of the caller
                result = await batches.answer(question, body)
        except NotAnswered as error:
            raise QuestionFailed(error.trouble, str(error), settled=error.settled) from None
        if isinstance(result, Completion):
            bill.tries -= 1  # another process has asked and paid
            return result
        return self._completion_of_line(result)

    def _completion_of_line(self, line: BatchLine) -> Completion:
        """Parse a batch's result. Raises QuestionFailed, CompletionRefused."""
        if line.response is None:
            error = line.error
            error_text = "nothing" if error is None else f"{error.code or ''} {error.message or ''}".strip()
            raise QuestionFailed(
                "outage", f"the batch ended without an answer to this question ({error_text})"
            )
        status, content = line.response.status_code, bytes(line.response.body)
        try:
            if status == OK:
                return read_completion(content)
            problem = said_in(content)
            failed = self._status_error(status, problem.code, problem.message or "", wait_s=None)
            if isinstance(failed, QuestionFailed):
                failed.settled = True  # a batch that has ended says it of this question
            raise failed
        except (MalformedCompletion, TransientFailure) as error:
            raise QuestionFailed("outage", f"in a batch: {error}") from None

    async def _call_batch_api(self, request: Callable[[], Awaitable[bytes]]) -> bytes:
        """Send a request of the Batch API. Raises NotAnswered."""
        import openai

        async def send() -> bytes:
            try:
                async with asyncio.timeout(self.settings.timeout_s):
                    return await request()
            except (TimeoutError, openai.APIConnectionError) as error:
                raise TransientFailure(f"no answer of its Batch API ({error.__cause__ or error})") from None
            except openai.APIStatusError as error:
                raise self._response_error(error) from None

        try:
            return await self._with_retries(send)
        except QuestionFailed as failed:
            settled = failed.settled and failed.trouble == "rejected"
            raise NotAnswered(failed.trouble, str(failed), settled=settled) from None

    async def _with_retries(self, send: Callable[[], Awaitable[Value]]) -> Value:
        """Send a request, with retries where they may help. Raises QuestionFailed, and what else `send` raises except
        TransientFailure.
        """
        assert self._pace is not None, "the endpoint is not open"
        settings = self.settings
        for further in range(settings.retries + 1):
            try:
                async with self._pace.slot():
                    return await send()
            except TransientFailure as passing:
                reason, wait_s = str(passing), passing.wait_s
            if further == settings.retries or (wait_s is not None and wait_s > LONGEST_HOLD_S):
                break
            if wait_s:
                self._pace.hold(wait_s)
            else:  # also where the server allows an immediate retry: that failed
                await self._sleep(settings.backoff_s * 2**further * self._random.uniform(0.5, 1.0))
        raise QuestionFailed(
            "outage", f"{settings.base_url} was asked {further + 1} times in vain, at last: {reason}"
        )

    async def _request(self, body: Mapping[str, Any]) -> Completion:
        """Send one request. Raises TransientFailure, CompletionRefused, QuestionFailed."""
        import openai

        settings = self.settings
        try:
            with request_span(
                settings.base_url, body, limit=body[settings.limit_field], content=self._content
            ) as answered:
                async with asyncio.timeout(settings.timeout_s):
                    response = await self._client.chat.completions.with_raw_response.create(**body)
                try:
                    completion = read_completion(response.content)
                except CompletionRefused as refused:
                    answered(refused.completion)
                    raise
                answered(completion)
                return completion
        except (TimeoutError, openai.APITimeoutError):
            raise TransientFailure(
                f"no answer within {settings.timeout_s:g} s (endpoint.timeout_s)"
            ) from None
        except openai.APIConnectionError as error:
            raise TransientFailure(f"it is out of reach ({error.__cause__ or error})") from None
        except MalformedCompletion as error:
            raise TransientFailure(str(error)) from None
        except openai.APIStatusError as error:
            raise self._response_error(error) from None

    def _response_error(self, error: Any) -> Exception:
        """The exception for a response other than success."""
        now_utc = datetime.now(UTC)
        wait_s = wait_asked_for(error.response.headers.get("retry-after"), now=now_utc)
        return self._status_error(int(error.status_code), error.code, str(error.message), wait_s=wait_s)

    def _status_error(
        self, status: int, code: str | None, message: str, *, wait_s: float | None
    ) -> Exception:
        if self._key:
            message = message.replace(self._key, "…")
        status_text = f"{status}: {message[:MOST_SHOWN]}"
        if code == REFUSING:
            return QuestionFailed("refusal", f"the provider's filter held the question back ({status_text})")
        if status in (401, 403):
            return QuestionFailed(
                "rejected",
                f"{self.settings.base_url} rejects the key in {self.settings.key_variable} (status {status}; "
                "endpoint.key_variable)",
                settled=False,  # with the right key a running batch answers
            )
        if (status in PASSING and code != QUOTA) or status >= 500:
            return TransientFailure(status_text, wait_s=wait_s)
        return QuestionFailed(
            "outage" if code == QUOTA else "rejected", f"{self.settings.base_url} says {status_text}"
        )


def _parse(completion: Completion, parse: Read[Value]) -> Value:
    """Parse an answer. Raises QuestionFailed where the text is invalid."""
    try:
        return parse(completion.text)
    except (ValueError, msgspec.DecodeError, RecursionError) as error:
        cut = ", cut at its greatest length (endpoint.max_tokens)" if completion.finish == "length" else ""
        raise QuestionFailed("malformed", f"That is no answer{cut}: {error}") from None
