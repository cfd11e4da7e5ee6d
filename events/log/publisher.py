"""The writer of a process: facts in, durable events out, in order, each exactly once.

    publish ─┐                                              ┌─ LogFull: the batch waits and is tried again
    decide  ─┼─> bounded queue ─> writer task ─> EventLog ──┼─ ExpectationFailed: to the caller of `decide`
    commit  ─┘                    one batch in flight       └─ anything else stops the writer and the body of `async with`

Consumes facts; waits for room in the queue (`log.queue_events`), for more events (`log.linger_ms`), for the log
(`log.append_timeout_s`); produces events whose hash chain advances only with events that are known to be stored. A process
that dies loses its queued facts, never an acknowledged one: a caller that must not lose a fact awaits `commit`.
"""

import asyncio
import re
import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from hashlib import sha256
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec
import structlog

from hindcast.core.errors import BrokerUnreachable, ExpectationFailed, HindcastError, LogFull
from hindcast.core.ids import uuid7
from hindcast.core.settings.schema import LogSettings
from hindcast.events.codec import MAX_EVENT_BYTES, EventTooLarge, encode, encode_fact
from hindcast.events.envelope import Envelope, Fact, Record
from hindcast.events.log.port import EventLog, Expectation
from hindcast.events.registry import BY_CLASS
from hindcast.events.subjects import subject_of
from hindcast.events.tracing import current_traceparent

BATCH_BYTES = 1024 * 1024
"""Most bytes in one atomic batch."""
ENVELOPE_BYTES = 1024
"""Estimated size of an envelope; twice that with names of usual length."""
FULL_RETRY_S = 0.25
"""Pause between attempts while the log is full."""
HURRIED_DRAIN_S = 4.0
"""How long `__aexit__` waits for queued facts after an error or a cancellation; honcho kills after 5 s."""
_KEY = re.compile(r"[^\s.*>]+(\.[^\s.*>]+)*")
_log = structlog.get_logger(__name__)


class _Decision:
    """A fact whose caller waits for its outcome; it is appended alone, with the facts that follow from it."""

    __slots__ = ("error", "expect", "position", "sent", "withdrawn")

    def __init__(self, expect: Expectation | None) -> None:
        self.expect = expect
        self.position = 0
        self.error: HindcastError | None = None
        self.sent = False
        """Whether the writer has begun to append it; from then on the writer bounds the wait and sets the outcome."""
        self.withdrawn = False


class _Pending(NamedTuple):
    """An accepted fact, complete except for its place in the chain."""

    number: int
    subject: str
    fields: dict[str, Any]
    payload_bytes: int
    decision: _Decision | None
    follows: bool
    """Whether it follows from the decision before it: both are appended, or neither."""
    traceparent: str


class _Chain:
    """The hash chain of one incarnation's events. It advances only with events that are known to be stored."""

    def __init__(self, *, run: str, producer: str, incarnation: str, code_rev: str) -> None:
        self._run = run
        self._producer = producer
        self._incarnation = incarnation
        self._code_rev = code_rev
        self._seq = 0
        self._prev_hash = b""

    def seal(self, batch: Sequence[_Pending]) -> tuple[list[Record], bytes]:
        """Encode facts as the next events of the chain; also return the chain's hash after them."""
        records = []
        prev_hash = self._prev_hash
        for offset, item in enumerate(batch):
            envelope = Envelope(
                run=self._run,
                producer=self._producer,
                incarnation=self._incarnation,
                producer_seq=self._seq + offset,
                prev_hash=prev_hash,
                code_rev=self._code_rev,
                **item.fields,
            )
            content = encode(envelope)
            prev_hash = sha256(content).digest()
            records.append(Record(item.subject, content, envelope.id, item.traceparent))
        return records, prev_hash

    def advance(self, count: int, prev_hash: bytes) -> None:
        """Advance the chain by `count` stored events."""
        self._seq += count
        self._prev_hash = prev_hash


class Publisher:
    """Appends one producer's facts to a log. Use as `async with Publisher(...) as publisher`."""

    def __init__(
        self,
        log: EventLog,
        *,
        producer: str,
        code_rev: str,
        settings: LogSettings,
        incarnation: str | None = None,
        clock_ns: Callable[[], int] = time.time_ns,
        randomness: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        """`producer` is role and number (`actor.1`); every start gets its own incarnation."""
        self.incarnation = incarnation or f"{producer}.{randomness(4).hex()}"
        self._log = log
        self._settings = settings
        self._clock_ns = clock_ns
        self._randomness = randomness
        self._chain = _Chain(run=log.run, producer=producer, incarnation=self.incarnation, code_rev=code_rev)
        self._subjects: dict[type[Fact], str] = {}
        """Subjects of facts whose subject does not depend on the entity."""
        self._queued: deque[_Pending] = deque()
        self._accepted = 0
        self._settled = 0
        self._position = 0
        self._committing = 0
        self._closing = False
        self._full_since: float | None = None
        self._failure: Exception | None = None
        self._wake = asyncio.Event()
        self._changed = asyncio.Condition()
        self._tasks = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._tasks.create_task(self._write(), name=f"writer of {self.incarnation}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        drain_s = self._settings.append_timeout_s if error is None else HURRIED_DRAIN_S
        self._closing = True
        self._wake.set()
        pending_error: Exception | None = None
        try:
            if self._failure is not None:  # the group has cancelled the body: let it undo that
                await self._tasks.__aexit__(kind, error, trace)
            else:
                async with asyncio.timeout(drain_s):
                    await self._tasks.__aexit__(None, None, None)
        except TimeoutError:
            pending_error = self._undelivered(drain_s)
        except BaseExceptionGroup:
            pending_error = self._failure
        if pending_error is not None and (error is None or isinstance(error, asyncio.CancelledError)):
            raise pending_error

    async def publish(
        self,
        fact: Fact,
        *,
        entity: str,
        ordinal: int = 0,
        causation: str | None = None,
        correlation: str | None = None,
        policy_version: int | None = None,
    ) -> None:
        """Queue a fact; wait only while the queue is full.

        Raises:
            EventTooLarge: the fact is too large; nothing was queued.
            LogFull: there was no room for `log.append_timeout_s`; this fact was not queued.
            HindcastError: the error that stopped the writer.

        """
        await self._accept(fact, entity, ordinal, causation, correlation, policy_version, None)

    async def commit(self) -> int:
        """Wait until everything queued before is durable; return the position of this producer's last event (0: none).

        Raises:
            LogFull: the log stayed full for `log.append_timeout_s`. The facts stay queued and are retried.
            HindcastError: the error that stopped the writer.

        """
        target = self._accepted
        self._committing += 1
        self._wake.set()
        try:
            await self._until(lambda: self._settled >= target)
        finally:
            self._committing -= 1
        return self._position

    async def decide(
        self,
        fact: Fact,
        *,
        entity: str,
        ordinal: int = 0,
        causation: str | None = None,
        correlation: str | None = None,
        policy_version: int | None = None,
        expect: Expectation | None = None,
        follows: Sequence[Fact] = (),
    ) -> int:
        """Append one fact, after everything queued before it, and wait until it is durable; return its position.

        `follows` are facts about the same entity that follow from it. They are appended directly after it: all or none.

        By default facts whose subject is created once are created only if it is empty.

        Raises:
            ExpectationFailed: another writer decided first; nothing was appended and the chain did not advance.
            LogFull: the log stayed full for `log.append_timeout_s`; the fact was withdrawn.
            HindcastError: the error that stopped the writer.

        """
        if expect is None and BY_CLASS[type(fact)].subject.created_once:
            expect = Expectation(subject=self._subject(fact, entity), last=0)
        decision = _Decision(expect)
        target = await self._accept(
            fact, entity, ordinal, causation, correlation, policy_version, decision, follows
        )
        self._committing += 1
        self._wake.set()
        try:
            await self._until(lambda: self._settled >= target, own=decision)
        except (asyncio.CancelledError, LogFull):
            decision.withdrawn = True
            raise
        finally:
            self._committing -= 1
        if decision.error is not None:
            raise decision.error
        return decision.position

    def _subject(self, fact: Fact, entity: str) -> str:
        cached = self._subjects.get(type(fact))
        if cached is not None:
            return cached
        per_entity = BY_CLASS[type(fact)].subject.per_entity
        key = entity if per_entity else self.incarnation
        if not _KEY.fullmatch(key):
            raise ValueError(
                f"{key!r} cannot be part of a subject: no blanks, no `*` or `>`, no empty part between dots"
            )
        subject = subject_of(self._log.run, fact, key=key)
        if not per_entity:
            self._subjects[type(fact)] = subject
        return subject

    async def _accept(
        self,
        fact: Fact,
        entity: str,
        ordinal: int,
        causation: str | None,
        correlation: str | None,
        policy_version: int | None,
        decision: _Decision | None,
        follows: Sequence[Fact] = (),
    ) -> int:
        sealed = [
            (sealed_fact, self._subject(sealed_fact, entity), self._payload(sealed_fact, entity))
            for sealed_fact in (fact, *follows)
        ]
        if self._closing:
            raise RuntimeError(f"{self.incarnation} is closed: nothing can be published any more")
        if self._failure is not None or len(self._queued) >= self._settings.queue_events:
            await self._until(lambda: len(self._queued) < self._settings.queue_events)
        for sealed_fact, subject, payload in sealed:
            occurred_ns = self._clock_ns()
            entry = BY_CLASS[type(sealed_fact)]
            fields = {
                "id": uuid7(occurred_ns // 1_000_000, self._randomness(10)),
                "type": entry.name,
                "version": entry.version,
                "entity": entity,
                "ordinal": ordinal,
                "causation": causation,
                "correlation": correlation,
                "occurred_ns": occurred_ns,
                "policy_version": policy_version,
                "payload": payload,
            }
            self._accepted += 1
            size, own = memoryview(payload).nbytes, decision if sealed_fact is fact else None
            follows_it = sealed_fact is not fact
            self._queued.append(
                _Pending(self._accepted, subject, fields, size, own, follows_it, current_traceparent())
            )
        self._wake.set()
        return self._accepted

    def _payload(self, fact: Fact, entity: str) -> msgspec.Raw:
        payload = encode_fact(fact)
        size = memoryview(payload).nbytes
        if size + ENVELOPE_BYTES > MAX_EVENT_BYTES:
            raise EventTooLarge(
                f"{BY_CLASS[type(fact)].name} of {entity} takes {size} bytes; the log takes {MAX_EVENT_BYTES - ENVELOPE_BYTES} "
                "per fact. Put its content into the blob store and name it by digest."
            )
        return payload

    async def _until(self, done: Callable[[], bool], *, own: _Decision | None = None) -> None:
        """Wait for the writer, bounded while the log is full. Once `own` is sent, the writer bounds its wait."""

        clock = asyncio.get_running_loop().time
        started = clock()

        def full_too_long() -> bool:
            if self._full_since is None or (own is not None and own.sent):
                return False
            return clock() - max(started, self._full_since) >= self._settings.append_timeout_s

        async with self._changed:
            await self._changed.wait_for(lambda: done() or self._failure is not None or full_too_long())
        if done():
            return
        if self._failure is not None:
            raise self._failure
        raise self._log_full("stay queued and are tried further" if own is None else "wait before this one")

    def _log_full(self, fate: str) -> LogFull:
        return LogFull(
            f"the log of run {self._log.run} has been full for {self._settings.append_timeout_s:g} s: "
            f"{self._accepted - self._settled} facts of {self.incarnation} {fate}. Raise log.max_bytes."
        )

    def _undelivered(self, waited_s: float) -> HindcastError:
        count = self._accepted - self._settled
        if self._full_since is not None:
            return self._log_full("were not appended")
        return BrokerUnreachable(
            f"{self.incarnation} stopped with {count} facts not acknowledged by the broker within {waited_s:g} s. "
            "They may or may not be in the log; everything acknowledged before is."
        )

    async def _write(self) -> None:
        try:
            while batch := await self._next_batch():
                await self._deliver(batch)
        except Exception as error:
            self._failure = error
            raise
        finally:
            async with self._changed:
                self._changed.notify_all()

    async def _next_batch(self) -> list[_Pending]:
        """Take the next batch: one decision with the facts that follow from it, or the facts up to the next decision.

        Empty when closing and drained.
        """
        while not self._queued:
            if self._closing:
                return []
            self._wake.clear()
            await self._wake.wait()
        await self._linger()
        batch: list[_Pending] = []
        size = 0
        while self._queued and len(batch) < self._settings.batch_events:
            item = self._queued[0]
            size += item.payload_bytes + ENVELOPE_BYTES
            if batch and (item.decision is not None or size > BATCH_BYTES):
                break
            batch.append(self._queued.popleft())
            if item.decision is not None:
                while self._queued and self._queued[0].follows:
                    batch.append(self._queued.popleft())
                break
        return batch

    async def _linger(self) -> None:
        deadline = asyncio.get_running_loop().time() + self._settings.linger_ms / 1000
        while not (self._committing or self._closing or len(self._queued) >= self._settings.batch_events):
            self._wake.clear()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._wake.wait()
            except TimeoutError:
                return

    async def _deliver(self, batch: list[_Pending]) -> None:
        decision = batch[0].decision
        if decision is None or not decision.withdrawn:
            if decision is not None:
                decision.sent = True
            records, prev_hash = self._chain.seal(batch)
            positions = await self._append(records, decision)
            if positions:
                self._chain.advance(len(batch), prev_hash)
                self._position = positions[-1]
                if decision is not None:
                    decision.position = positions[0]
        self._full_since = None
        self._settled = batch[-1].number
        async with self._changed:
            self._changed.notify_all()

    async def _append(self, records: list[Record], decision: _Decision | None) -> list[int]:
        """Append records; return their positions, empty for a decision that was refused or withdrawn."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                return await self._log.append(records, expect=decision.expect if decision else None)
            except ExpectationFailed as error:
                if decision is None:
                    raise
                decision.error = error
                return []
            except LogFull as error:
                if self._full_since is None:
                    self._full_since = loop.time()
                    _log.error("the log is full: waiting", producer=self.incarnation, reason=str(error))
                waited_s = loop.time() - self._full_since
                if decision is not None and (
                    decision.withdrawn or waited_s >= self._settings.append_timeout_s
                ):
                    decision.error = error
                    return []
                async with self._changed:
                    self._changed.notify_all()
                await asyncio.sleep(FULL_RETRY_S)
