"""Maps an event to the rows it changes: a pure function of one event.

An event without a mapper of its own becomes a notice, so that every event is visible in the read model. Unknown types change
nothing.
"""

from collections.abc import Callable, Iterable

from hindcast.events.envelope import Recorded
from hindcast.events.registry import BY_CLASS
from hindcast.storage.readmodel.mapping.episodes import ACTING
from hindcast.storage.readmodel.mapping.run import RUNNING, general_notice
from hindcast.storage.readmodel.mapping.training import TRAINING
from hindcast.storage.readmodel.row_operations import Operation

Mapper = Callable[..., Iterable[Operation]]

MAPPERS: dict[type, Mapper] = {**ACTING, **TRAINING, **RUNNING}
"""Fact class -> mapper of (recorded, fact)."""


def operations(recorded: Recorded) -> Iterable[Operation]:
    """The event's operations on the read model; deterministic, no clock, no I/O."""
    mapper = MAPPERS.get(type(recorded.fact))
    if mapper is not None:
        return mapper(recorded, recorded.fact)
    return (general_notice(recorded),) if type(recorded.fact) in BY_CLASS else ()
