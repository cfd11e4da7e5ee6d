"""Exactly-once append of a batch, although the outcome of any single attempt may stay unknown. Shared by the adapters.

An attempt with an unknown outcome (timeout, reconnect) is repeated with identical bytes and event ids. A refusal after an
unknown outcome is accepted only after reading back whether the batch is stored.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from hindcast.core.errors import BrokerUnreachable, ExpectationFailed, HindcastError, LogFull
from hindcast.events.envelope import Record
from hindcast.events.log.port import Expectation


class Committed(msgspec.Struct, frozen=True):
    """The whole batch is durable."""

    positions: list[int]


class AlreadyStored(msgspec.Struct, frozen=True):
    """At least one of the ids is already stored; nothing was appended now."""


class ExpectationRefused(msgspec.Struct, frozen=True):
    """The expectation does not hold; nothing was appended."""


class StreamFull(msgspec.Struct, frozen=True):
    """The size limit is reached; nothing was appended."""


class OutcomeUnknown(msgspec.Struct, frozen=True):
    """No answer in time: the batch may or may not be stored."""

    reason: str


Outcome = Committed | AlreadyStored | ExpectationRefused | StreamFull | OutcomeUnknown


class AppendLink(Protocol):
    """Operations of an adapter that `append_once` needs."""

    @property
    def run(self) -> str:
        """The run the log belongs to."""
        ...

    async def attempt(self, batch: Sequence[Record], expect: Expectation | None) -> Outcome:
        """Try once, bounded in time."""
        ...

    async def find(self, batch: Sequence[Record]) -> list[int | None] | None:
        """Find the position of each event by id, None if it is not stored; None instead of the list without an answer."""
        ...


async def append_once(
    link: AppendLink,
    batch: Sequence[Record],
    expect: Expectation | None,
    *,
    patience: Callable[[], bool],
    pause: Callable[[int], Awaitable[None]],
) -> list[int]:
    """Append all or nothing, with as many attempts as `patience` allows; return the positions in order.

    Raises:
        ExpectationFailed, LogFull: nothing was appended.
        BrokerUnreachable: the outcome stayed unknown.

    """
    placed: dict[str, int] = {}
    missing = list(batch)
    uncertain = False
    reason = ""
    tries = 0
    while missing:
        tries += 1
        outcome = await link.attempt(missing, expect)
        if isinstance(outcome, Committed):
            placed.update(zip((record.id for record in missing), outcome.positions, strict=True))
            break
        if isinstance(outcome, StreamFull) and not uncertain:
            raise _refusal(link.run, outcome, expect)
        if isinstance(outcome, OutcomeUnknown):
            uncertain, reason = True, outcome.reason
        else:
            stored_positions = await link.find(missing)
            if stored_positions is None:
                uncertain, reason = True, "it cannot be read back whether they are stored"
            else:
                stored = {
                    record.id: position
                    for record, position in zip(missing, stored_positions, strict=True)
                    if position is not None
                }
                absent = [record for record in missing if record.id not in stored]
                if absent and (
                    isinstance(outcome, ExpectationRefused | StreamFull) or (stored and expect is not None)
                ):
                    raise _refusal(link.run, outcome, expect)
                if stored:
                    placed.update(stored)
                    missing = absent
                    continue
                reason = "the broker calls them repeated, but they cannot be read back"
        if not patience():
            raise BrokerUnreachable(
                f"appending {len(missing)} events to the log of run {link.run} had no known outcome after {tries} tries "
                f"({reason}). Nothing that was acknowledged is lost; start again once the broker answers."
            )
        await pause(tries)
    return [placed[record.id] for record in batch]


def _refusal(run: str, outcome: Outcome, expect: Expectation | None) -> HindcastError:
    if isinstance(outcome, StreamFull):
        return LogFull(
            f"the log of run {run} reached its size limit: nothing was lost, nothing more can be appended. "
            "Raise log.max_bytes in the settings and start the run again."
        )
    assert expect is not None, "a refusal needs an expectation"
    return ExpectationFailed(
        f"another writer came first: the last event under {expect.subject} is not at position {expect.last} any more. "
        "What this process wanted to record has been decided already."
    )
