"""Queries about work that waits: from when until when a piece of it was in a queue between two parts of the run.

    requested ──> an actor begins it    ended ──> a judge decides    judged ──> a batch has it

The log records only what happens to an episode. So these queues are those of episodes, by the clocks of the producers; what
waits inside a process (a prompt in an engine, a message in a connection) is in no event.
"""

from itertools import chain
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, and_, case, func, or_, select

from hindcast.events.catalogue.curriculum import NEVER_TRAINED
from hindcast.storage.readmodel.query_parts import (
    also_holding,
    holding,
    newest_ns,
    position_of,
    training_judge,
)
from hindcast.storage.readmodel.tables import batch_episodes, batches, episodes, judged, steps

EARLIER_NS = 600 * 1_000_000_000
"""Work is known if it began to wait at most this long before the stretch; older work would be searched in the whole run."""


class Wait(NamedTuple):
    """One episode in a queue; times in nanoseconds since 1970."""

    entered_ns: int
    left_ns: int | None
    """None: it waits still."""


class Waits(NamedTuple):
    """The episodes in each queue within a stretch of time."""

    requested: list[Wait]
    """Requested, until an actor begins them or they are canceled."""
    ended: list[Wait]
    """Ended, until the training judge has decided."""
    judged: list[Wait]
    """Judged, until a batch has them; without those that are never trained on or were discarded before."""


def queue_waits(connection: Connection, *, since_ns: int, until_ns: int, as_of: int | None = None) -> Waits:
    """The waits that overlap a stretch of time, in no order."""
    position = position_of(connection, as_of)
    earliest = since_ns - EARLIER_NS
    first, last = _positions(connection, earliest, until_ns, position)
    began = func.coalesce(episodes.c.started_ns, episodes.c.terminal_ns)
    requested = (
        select(episodes.c.requested_ns, began)
        .where(also_holding(episodes, position), episodes.c.requested_position.between(first, last))
        .where(episodes.c.requested_ns.between(earliest, until_ns), or_(began.is_(None), began > since_ns))
    )
    over, judged_apart = (
        connection.execute(one).all() for one in _over(connection, earliest, until_ns, position)
    )
    ended = [
        Wait(terminal_ns, decided_ns)
        for terminal_ns, decided_ns, is_ended, _, _ in over
        if is_ended and (decided_ns is None or decided_ns > since_ns)
    ]
    waiting = [
        Wait(decided_ns, batch_ns)
        for _, decided_ns, _, trainable, batch_ns in chain(over, judged_apart)
        if trainable and decided_ns is not None and earliest <= decided_ns <= until_ns
        if batch_ns is None or batch_ns > since_ns
    ]
    return Waits([Wait(*row) for row in connection.execute(requested)], ended, waiting)


def _over(
    connection: Connection, earliest: int, until_ns: int, position: int
) -> tuple[Select[Any], Select[Any]]:
    """Episodes that were over within a stretch, and others that were judged in it.

    Of each its end, first verdict, whether it ended, whether it may be trained on, and its first batch. One pass for both
    queues, because finding an episode's rows costs several times as much as reading the next entry of an index.
    """
    judge = training_judge(connection, as_of=position)
    decided = and_(
        judged.c.episode == episodes.c.episode, judged.c.judge == judge, judged.c.valid_from <= position
    )
    planned = (
        select(batches.c.occurred_ns)
        .where(batches.c.position == _first_batch(position))
        .limit(1)
        .scalar_subquery()
    )
    trainable = and_(episodes.c.swept.is_(None), episodes.c.origin.not_in(NEVER_TRAINED))
    values = select(
        episodes.c.terminal_ns,
        judged.c.decided_ns,
        episodes.c.state == "ended",
        trainable,
        case((trainable, planned)),  # searched only for those that may have one
    ).where(also_holding(episodes, position))
    ended = judged.c.terminal_ns
    return (
        values.select_from(episodes.outerjoin(judged, decided)).where(
            episodes.c.terminal_ns.between(earliest, until_ns)
        ),
        values.select_from(judged.join(episodes, decided)).where(
            judged.c.decided_ns.between(earliest, until_ns),
            or_(ended.is_(None), ended < earliest, ended > until_ns),
        ),
    )


def _positions(connection: Connection, first_ns: int, last_ns: int, position: int) -> tuple[int, int]:
    """Positions of the last step before a time and of the first one after another: between them is all that happened then."""
    recorded = select(steps.c.position).where(holding(steps, position))
    before = recorded.where(steps.c.occurred_ns < first_ns).order_by(
        steps.c.occurred_ns.desc(), steps.c.position.desc()
    )
    first = connection.scalar(before.limit(1)) or 0
    if (newest_ns(connection, steps, position) or 0) <= last_ns:
        return first, position  # without a search through all steps after the position, none of which counts
    after = recorded.where(steps.c.occurred_ns > last_ns).order_by(steps.c.occurred_ns, steps.c.position)
    return first, connection.scalar(after.limit(1)) or position


def _first_batch(position: int) -> Any:
    """Position of the first batch that has an episode of the outer query."""
    return (
        select(func.min(batch_episodes.c.position))
        .where(batch_episodes.c.episode == episodes.c.episode, batch_episodes.c.position <= position)
        .correlate(episodes)
        .scalar_subquery()
    )
