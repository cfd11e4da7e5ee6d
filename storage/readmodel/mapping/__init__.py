"""From a fact to the rows it changes: a pure function of one event, one mapper per type in the catalogue.

Whatever has no table of its own becomes a notice, so no fact is lost to people who look only here. A type that this
version does not know changes nothing.
"""

from collections.abc import Callable, Iterable

from hindcast.events.envelope import Recorded
from hindcast.storage.readmodel.mapping.episodes import ACTING
from hindcast.storage.readmodel.mapping.run import RUNNING
from hindcast.storage.readmodel.mapping.training import TRAINING
from hindcast.storage.readmodel.row_operations import Operation

Mapper = Callable[..., Iterable[Operation]]

MAPPERS: dict[type, Mapper] = {**ACTING, **TRAINING, **RUNNING}
"""Fact class -> mapper of (recorded, fact)."""


def operations(recorded: Recorded) -> Iterable[Operation]:
    """What the event does to the read model; deterministic, no clock, no I/O."""
    mapper = MAPPERS.get(type(recorded.fact))
    return mapper(recorded, recorded.fact) if mapper else ()
