"""Places in a log: names such as `update=40`, and the positions that they denote.

    PLACE  = POSITION | "end" | NOUN "=" NUMBER | NOUN "=last"
    NOUN   = "position" | "update" | "batch" | "policy" | "checkpoint"

| place | position of |
|---|---|
| `812`, `position=812` | that event |
| `end` | the last event now |
| `update=40` | `update.applied` number 40 of the policy |
| `batch=7` | the `weights.published` that closes batch 7 |
| `policy=3` | `weights.published` of version 3 |
| `checkpoint=40` | `checkpoint.saved` after update 40 |
| `update=last` … | the last of its kind |

A place denotes the log up to and including that event. Every command that takes a place uses this grammar.
"""

import re
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Literal, get_args

import msgspec

from hindcast.core.domain.arrays import unpack_ids
from hindcast.core.errors import NoSuchPlace
from hindcast.events.catalogue import (
    BatchPlanned,
    CheckpointSaved,
    UpdateApplied,
    UpdateSkipped,
    WeightsPublished,
)
from hindcast.events.envelope import Fact
from hindcast.events.log.port import EventLog
from hindcast.events.log.reader import skim

Noun = Literal["position", "update", "batch", "policy", "checkpoint"]

_NOUNS: dict[str, Noun] = {noun: noun for noun in get_args(Noun)}
_PLACE = re.compile(rf"(?:({'|'.join(_NOUNS)})=)?([0-9]{{1,18}}|last)")
_MODEL = "policy"
"""Model to which `update` and `policy` refer, of all that a run may train."""


class Place(msgspec.Struct, frozen=True):
    """A parsed place, not yet looked up."""

    noun: Noun
    number: int | None
    """None: the last of its kind."""

    def __str__(self) -> str:
        return f"{self.noun}={'last' if self.number is None else self.number}"


END = Place("position", None)


def parse_place(text: str) -> Place:
    """Parse a place.

    Raises:
        NoSuchPlace: the text does not follow the grammar.

    """
    if text == "end":
        return END
    match = _PLACE.fullmatch(text)
    if match is None or text == "last":
        raise NoSuchPlace(
            f"{text!r} is no place in a log: give a position such as 812, `end`, or update=N, batch=N, policy=N, "
            "checkpoint=N, where N is a number or `last`"
        )
    noun, number = match.groups()
    return Place(_NOUNS[noun] if noun else "position", None if number == "last" else int(number))


@dataclass(slots=True)
class Landmarks:
    """Positions of updates, batches, policy versions and checkpoints, collected from the learner's facts in order."""

    positions: dict[Noun, dict[int, int]] = field(default_factory=dict)
    """Number -> position, for each noun."""
    _batch: int | None = None
    """Planned batch whose weights are not published yet."""

    def take(self, position: int, fact: Fact) -> None:
        """Note the place that an event denotes, if any."""
        match fact:
            case UpdateApplied(model=model, update=update) if model == _MODEL:
                self._note("update", update, position)
            case BatchPlanned(batch=batch):
                self._batch = batch
            case WeightsPublished(model=model, version=version) if model == _MODEL:
                self._note("policy", version, position)
                if self._batch is not None:
                    self._note("batch", self._batch, position)
                    self._batch = None
            case CheckpointSaved(update=update):
                self._note("checkpoint", update, position)
            case _:
                pass

    def _note(self, noun: Noun, number: int, position: int) -> None:
        self.positions.setdefault(noun, {})[number] = position

    def find(self, place: Place) -> int:
        """Find the position of a place that is not given as a position.

        Raises:
            NoSuchPlace: there is no such event; the message says which exist.

        """
        positions = self.positions.get(place.noun, {})
        number = max(positions, default=None) if place.number is None else place.number
        if number is None or number not in positions:
            there_are = describe_range(min(positions, default=None), max(positions, default=None))
            if place.noun == "batch" and positions:
                there_are += " whose weights are published"
            raise NoSuchPlace(f"the log has no {place}: {there_are}. Positions can be given, too.")
        return positions[number]


def describe_range(lowest: int | None, highest: int | None) -> str:
    """Describe a range of numbers for an error message; None: the range is empty."""
    if lowest is None:
        return "there is none yet"
    return f"there is only {lowest}" if lowest == highest else f"there are {lowest} to {highest}"


async def position_of(log: EventLog, place: Place) -> int:
    """Find the position of a place in a log. Damaged events are skipped here; a reader of the log reports them.

    Raises:
        NoSuchPlace: the log does not reach the position, or has no such event.

    """
    identity = await log.identity()
    if place.noun != "position":
        return (await find_landmarks(log, end=identity.last)).find(place)
    position = identity.last if place.number is None else place.number
    if not identity.first <= position <= identity.last or position == 0:
        raise NoSuchPlace(
            f"the log of run {log.run} has no position {position}: it goes from {identity.first} to {identity.last}."
        )
    return position


async def find_landmarks(log: EventLog, *, end: int) -> Landmarks:
    """Collect landmarks from the learner's events up to `end`."""
    landmarks = Landmarks()
    async with aclosing(skim(log, family="learner", until=end)) as events:
        async for recorded in events:
            landmarks.take(recorded.position, recorded.fact)
    return landmarks


class OpenBatch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch planned before a position, with updates after it."""

    batch: int
    model: str
    """Model that it trains."""
    planned_at: int
    """Position of its `batch.planned`."""
    updates: int
    """Number of planned updates."""
    done: int
    """Number of updates up to the position, including skipped ones."""


async def find_open_batch(log: EventLog, *, position: int) -> OpenBatch | None:
    """Find the batch whose updates a position divides; None between two batches."""
    open_batch: OpenBatch | None = None
    async with aclosing(skim(log, family="learner", until=position)) as events:
        async for recorded in events:
            match recorded.fact:
                case BatchPlanned() as fact:
                    open_batch = OpenBatch(
                        batch=fact.batch,
                        model=fact.model,
                        planned_at=recorded.position,
                        updates=len(unpack_ids(fact.minibatches)),
                        done=0,
                    )
                case UpdateApplied() | UpdateSkipped() if open_batch is not None:
                    open_batch = msgspec.structs.replace(open_batch, done=open_batch.done + 1)
                case _:
                    pass
    return open_batch if open_batch is not None and open_batch.done < open_batch.updates else None
