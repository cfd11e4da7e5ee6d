"""The runtime of a consumer: tails the log from its own position and applies each batch together with the new position.

    log --tail--> checked events --apply--> effect + position, in one transaction of the effect

Consumes events following the effect's position; waits for the log (its adapter's bound) and between attempts of a failing
effect (`Retries`); produces what the effect does. The effect stores the position in the same transaction, because positions
in the broker go back when it is killed. Consumers are independent: a slow, stuck or new one does not affect others.

An event that the effect cannot apply is retried with back-off, then alone. A strict consumer stops with an error that names
the event. A live one (`LiveEffect`) sets it aside with an `event.dead_lettered` fact, together with all later events of the
same entity: a poison event holds back only its own episode.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Protocol, runtime_checkable

import msgspec
import structlog

from hindcast.core.errors import HindcastError
from hindcast.events.catalogue.operation import EventDeadLettered
from hindcast.events.envelope import Recorded
from hindcast.events.log.port import EventLog
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.reader import Bookmark, tail_batches
from hindcast.events.log.work_queue import append_dead_letter

_log = structlog.get_logger(__name__)


class ConsumerStopped(HindcastError):
    """A consumer could not apply an event and may not skip it."""


class Retries(msgspec.Struct, frozen=True, kw_only=True):
    """Retry policy of a failing effect: attempts and exponential back-off."""

    tries: int = 5
    first_wait_s: float = 0.1
    max_wait_s: float = 5.0

    def wait_s(self, failures: int) -> float:
        """Return the wait in seconds after a number of failures; it doubles each time."""
        return float(min(self.max_wait_s, self.first_wait_s * 2 ** (failures - 1)))


class Effect(Protocol):
    """The effect of a consumer on its own store, including its position."""

    async def position(self) -> int:
        """Return the position of the last event whose effect is durable; 0 at the beginning."""
        ...

    async def apply(self, events: Sequence[Recorded], position: int) -> None:
        """Apply events and store `position`, all or nothing. `events` may be empty (types that it skips).

        A HindcastError means that the effect itself cannot work now; any other exception, that it cannot apply the events.
        """
        ...


@runtime_checkable
class Bookmarked(Protocol):
    """An effect that stores which log it has read, so that a different log is refused at the start."""

    async def bookmark(self) -> Bookmark | None:
        """Return where it stopped; None at the beginning."""
        ...


@runtime_checkable
class LiveEffect(Protocol):
    """An effect that may continue without an event, and stores which events it skipped."""

    async def set_aside(self, recorded: Recorded, error: str) -> None:
        """Store that the event was not applied, and its position as reached, all or nothing."""
        ...

    async def held_back(self) -> set[str]:
        """Return the keys (`key_of`) of the events set aside so far."""
        ...


def key_of(recorded: Recorded) -> str:
    """Return the key of related events: the correlation (an episode, a batch), else the entity."""
    return recorded.envelope.correlation or recorded.envelope.entity


async def consume(
    log: EventLog,
    effect: Effect,
    *,
    name: str,
    until: int | None = None,
    retries: Retries | None = None,
    dead_letters: Publisher | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> int:
    """Apply the log to an effect, forever or up to a position; return the position reached.

    Strict unless the effect is a `LiveEffect`. Types that this Hindcast does not know are skipped. `dead_letters` records
    events that are set aside; `on_progress` is called with every position reached.

    Raises:
        ConsumerStopped: the effect failed for good (strict).
        CorruptEvent, UnknownVersion, ForeignLog, BrokerUnreachable: the log cannot be read.

    """
    position = await effect.position()
    if until is not None and position >= until:
        return position
    consumer = _Consumer(effect, name, retries or Retries(), dead_letters)
    await consumer.recall()
    bookmark = await effect.bookmark() if isinstance(effect, Bookmarked) else None
    async with aclosing(tail_batches(log, after=position, bookmark=bookmark)) as batches:
        async for events, reached in batches:
            selected = events
            if until is not None and reached > until:
                selected, reached = [recorded for recorded in events if recorded.position <= until], until
            await consumer.take(selected, reached)
            position = reached
            if on_progress is not None:
                on_progress(position)
            if until is not None and position >= until:
                break
    return position


class _Consumer:
    """Applies a consumer's batches and handles poison events."""

    def __init__(self, effect: Effect, name: str, retries: Retries, dead_letters: Publisher | None) -> None:
        self._effect = effect
        self._live = effect if isinstance(effect, LiveEffect) else None
        self._name = name
        self._retries = retries
        self._dead_letters = dead_letters
        self._held: set[str] = set()

    async def recall(self) -> None:
        """Load the keys set aside before this start."""
        if self._live is not None:
            self._held = set(await self._live.held_back())

    async def take(self, events: Sequence[Recorded], position: int) -> None:
        """Apply a batch; if that fails for good, apply its events one by one."""
        if not any(key_of(recorded) in self._held for recorded in events):
            error = await self._try(events, position)
            if error is None:
                return
            if not events:
                raise self._stopped(
                    f"position {position} (no event, its own position)", position, error
                ) from error
        for recorded in events:
            if self._live is not None and key_of(recorded) in self._held:
                await self._set_aside(
                    recorded, "an earlier event about the same entity was set aside", tries=0
                )
                continue
            error = await self._try([recorded], recorded.position)
            if error is None:
                continue
            if self._live is None:
                description = (
                    f"position {recorded.position} ({recorded.envelope.type} of {recorded.envelope.entity})"
                )
                raise self._stopped(description, recorded.position, error) from error
            await self._set_aside(recorded, f"{type(error).__name__}: {error}", tries=self._retries.tries)
        if not events or events[-1].position < position:
            await self._effect.apply([], position)

    async def _try(self, events: Sequence[Recorded], position: int) -> Exception | None:
        """Apply with retries; return None, or the last error. Raises a HindcastError, which concerns the system, not the event."""
        failed = 0
        while True:
            try:
                await self._effect.apply(events, position)
            except Exception as error:  # the effect is foreign code: any exception counts as poison
                failed += 1
                _log.warning(
                    "effect failed", consumer=self._name, position=position, failed=failed, error=str(error)
                )
                if failed < self._retries.tries:
                    await asyncio.sleep(self._retries.wait_s(failed))
                elif isinstance(error, HindcastError):
                    raise
                else:
                    return error
            else:
                return None

    def _stopped(self, description: str, position: int, error: Exception) -> ConsumerStopped:
        return ConsumerStopped(
            f"consumer {self._name} cannot take in {description} after {self._retries.tries} tries: {type(error).__name__}: "
            f"{error}. Its state ends before; mend the cause and start it again, or rebuild it. "
            f"Run: hindcast log show --position {position}"
        )

    async def _set_aside(self, recorded: Recorded, error: str, *, tries: int) -> None:
        assert self._live is not None
        fact = EventDeadLettered(consumer=self._name, position=recorded.position, tries=tries, error=error)
        await append_dead_letter(self._dead_letters, fact, recorded.envelope)
        await self._live.set_aside(recorded, error)
        self._held.add(key_of(recorded))
        _log.error("event set aside", consumer=self._name, position=recorded.position, error=error)
