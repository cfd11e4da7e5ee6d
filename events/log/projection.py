"""Projections: state as a fold over the log. `fold` is the only loop.

Projections are deterministic: no clock, no I/O, no randomness. Invariant 1, log is the truth: discarding a state and folding
the log again gives the same state.
"""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from hindcast.events.envelope import Recorded

S = TypeVar("S")


class Projection(Protocol[S]):
    """A fold of the log into a state."""

    def initial(self) -> S:
        """Return the state before the first event."""
        ...

    def apply(self, state: S, recorded: Recorded) -> S:
        """Return the state after one more event; may mutate and return `state`. Irrelevant facts are ignored."""
        ...


def fold(projection: Projection[S], events: Iterable[Recorded], state: S | None = None) -> S:
    """Apply events in order, from the initial state or from `state`."""
    current = projection.initial() if state is None else state
    for recorded in events:
        current = projection.apply(current, recorded)
    return current
