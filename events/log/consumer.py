"""The runtime of a consumer: tail the log from its own position, apply each batch together with the new position.

    log --tail--> checked events --apply--> effect + position, in one transaction of the effect

Consumes events following the effect's position; waits for the log (its adapter's bound) and between tries of a failing
effect (`Retries`); produces whatever the effect does. The position is kept by the effect itself, in the same
transaction: positions that a broker holds go backwards when it is killed. Consumers are independent: one that is slow,
stuck or new disturbs nobody.

An event that the effect cannot take is tried again with back-off, then alone. A strict consumer stops with an error
that names it. A live one (`LiveEffect`) sets it aside, with an `event.dead_lettered` fact, and with it everything else
about the same entity: a poison event holds back only its own episode.
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

_log = structlog.get_logger(__name__)


class ConsumerStopped(HindcastError):
    """A consumer could not apply an event and may not pass over it."""


class Retries(msgspec.Struct, frozen=True, kw_only=True):
    """How often and how patiently a failing effect is tried."""

    tries: int = 5
    first_wait_s: float = 0.1
    max_wait_s: float = 5.0

    def wait_s(self, failed: int) -> float:
        """The wait after so many failures: doubling."""
        return float(min(self.max_wait_s, self.first_wait_s * 2 ** (failed - 1)))


class Effect(Protocol):
    """What a consumer does with events, and its own record of how far it came."""

    async def position(self) -> int:
        """Position of the last event whose effect is durable; 0 at the beginning."""
        ...

    async def apply(self, recordeds: Sequence[Recorded], position: int) -> None:
        """Take in these events and record `position`, all or nothing. `recordeds` may be empty (types it skips).

        A HindcastError means that the effect itself cannot work now; anything else, that it cannot take these events.
        """
        ...


@runtime_checkable
class Bookmarked(Protocol):
    """An effect that can say which log it has read; checked at the start, so that a swapped log is refused."""

    async def bookmark(self) -> Bookmark | None:
        """Where it stopped; None at the beginning."""
        ...


@runtime_checkable
class LiveEffect(Protocol):
    """An effect that may go on without an event, and remembers which."""

    async def set_aside(self, recorded: Recorded, error: str) -> None:
        """Remember that this event was not applied, and record its position as reached, all or nothing."""
        ...

    async def held_back(self) -> set[str]:
        """Keys (`key_of`) of the events set aside so far."""
        ...


def key_of(recorded: Recorded) -> str:
    """What belongs together: the correlation (an episode, a batch), else the entity."""
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
    """Apply the log to an effect, for ever or up to a position; returns the position reached.

    Strict unless the effect is a `LiveEffect`. Types this Hindcast does not know are passed over. `dead_letters` records
    what is set aside; `on_progress` hears of every position reached.

    Raises:
        ConsumerStopped: the effect failed for good (strict).
        CorruptEvent, UnknownVersion, ForeignLog, BrokerUnreachable: from reading.

    """
    position = await effect.position()
    if until is not None and position >= until:
        return position
    consumer = _Consumer(effect, name, retries or Retries(), dead_letters)
    await consumer.recall()
    bookmark = await effect.bookmark() if isinstance(effect, Bookmarked) else None
    async with aclosing(tail_batches(log, after=position, bookmark=bookmark)) as batches:
        async for recordeds, reached in batches:
            wanted = recordeds
            if until is not None and reached > until:
                wanted, reached = [recorded for recorded in recordeds if recorded.position <= until], until
            await consumer.take(wanted, reached)
            position = reached
            if on_progress is not None:
                on_progress(position)
            if until is not None and position >= until:
                break
    return position


class _Consumer:
    """One consumer's handling of batches and of poison."""

    def __init__(self, effect: Effect, name: str, retries: Retries, dead_letters: Publisher | None) -> None:
        self._effect = effect
        self._live = effect if isinstance(effect, LiveEffect) else None
        self._name = name
        self._retries = retries
        self._dead_letters = dead_letters
        self._held: set[str] = set()

    async def recall(self) -> None:
        """What was set aside before this start."""
        if self._live is not None:
            self._held = set(await self._live.held_back())

    async def take(self, recordeds: Sequence[Recorded], position: int) -> None:
        """Apply a batch; if it fails for good, its events one by one."""
        if not any(key_of(recorded) in self._held for recorded in recordeds):
            error = await self._try(recordeds, position)
            if error is None:
                return
            if not recordeds:
                raise self._stopped(
                    f"position {position} (no event, its own position)", position, error
                ) from error
        for recorded in recordeds:
            if self._live is not None and key_of(recorded) in self._held:
                await self._set_aside(
                    recorded, "an earlier event about the same entity was set aside", tries=0
                )
                continue
            error = await self._try([recorded], recorded.position)
            if error is None:
                continue
            if self._live is None:
                what = (
                    f"position {recorded.position} ({recorded.envelope.type} of {recorded.envelope.entity})"
                )
                raise self._stopped(what, recorded.position, error) from error
            await self._set_aside(recorded, f"{type(error).__name__}: {error}", tries=self._retries.tries)
        if not recordeds or recordeds[-1].position < position:
            await self._effect.apply([], position)

    async def _try(self, recordeds: Sequence[Recorded], position: int) -> Exception | None:
        """None once applied, else the last error. Our own errors are about the system, not the event: they pass through."""
        failed = 0
        while True:
            try:
                await self._effect.apply(recordeds, position)
            except Exception as error:  # the effect is foreign code: whatever it raises counts as poison
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

    def _stopped(self, what: str, position: int, error: Exception) -> ConsumerStopped:
        return ConsumerStopped(
            f"consumer {self._name} cannot take in {what} after {self._retries.tries} tries: {type(error).__name__}: "
            f"{error}. Its state ends before; mend the cause and start it again, or rebuild it. "
            f"Run: hindcast log show --position {position}"
        )

    async def _set_aside(self, recorded: Recorded, error: str, *, tries: int) -> None:
        assert self._live is not None
        if self._dead_letters is not None:
            await self._dead_letters.publish(
                EventDeadLettered(consumer=self._name, position=recorded.position, tries=tries, error=error),
                entity=self._name,
                ordinal=recorded.position,
                causation=recorded.envelope.id,
                correlation=recorded.envelope.correlation,
            )
            await self._dead_letters.commit()
        await self._live.set_aside(recorded, error)
        self._held.add(key_of(recorded))
        _log.error("event set aside", consumer=self._name, position=recorded.position, error=error)
