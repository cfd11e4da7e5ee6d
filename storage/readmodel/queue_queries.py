"""Queries about work that waits: from when until when a piece of it was in a queue between two parts of the run.

    requested ──> an actor begins it    ended ──> a judge decides    judged ──> a batch has it

The log records only what happens to an episode. So these queues are those of episodes, by the clocks of the producers; what
waits inside a process (a prompt in an engine, a message in a connection) is in no event.
"""

from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, and_, func, select

from hindcast.events.catalogue.curriculum import NEVER_TRAINED
from hindcast.storage.readmodel.query_parts import also_holding, holding, position_of, training_judge
from hindcast.storage.readmodel.tables import batch_episodes, batches, episodes, judged, steps, verdicts

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
    """The waits that overlap a stretch of time, by their beginning."""
    position = position_of(connection, as_of)
    judge = training_judge(connection, as_of=position)
    earliest = since_ns - EARLIER_NS
    first, last = _positions(connection, earliest, until_ns, position)
    began = func.coalesce(episodes.c.started_ns, episodes.c.terminal_ns)
    requested = (
        select(episodes.c.requested_ns, began)
        .where(also_holding(episodes, position), episodes.c.requested_position.between(first, last))
        .where(episodes.c.requested_ns.between(earliest, until_ns))
    )
    decided = and_(
        judged.c.episode == episodes.c.episode, judged.c.judge == judge, judged.c.valid_from <= position
    )
    recorded = and_(verdicts.c.position == judged.c.valid_from, verdicts.c.episode == judged.c.episode)
    ended_waits = (
        select(episodes.c.terminal_ns, verdicts.c.occurred_ns)
        .select_from(episodes.outerjoin(judged, decided).outerjoin(verdicts, recorded))
        .where(also_holding(episodes, position), episodes.c.state == "ended")
        .where(episodes.c.terminal_ns.between(earliest, until_ns))
    )
    planned = (
        select(batches.c.occurred_ns)
        .where(batches.c.position == _first_batch(position))
        .limit(1)
        .scalar_subquery()
    )
    waiting = (
        select(verdicts.c.occurred_ns, planned)
        .select_from(verdicts.join(judged, recorded).join(episodes, decided))
        .where(also_holding(episodes, position), episodes.c.swept.is_(None))
        .where(episodes.c.origin.not_in(NEVER_TRAINED))
        .where(verdicts.c.position.between(first, last), verdicts.c.occurred_ns.between(earliest, until_ns))
    )
    return Waits(
        *(_overlapping(connection, statement, since_ns) for statement in (requested, ended_waits, waiting))
    )


def _positions(connection: Connection, first_ns: int, last_ns: int, position: int) -> tuple[int, int]:
    """Positions of the last step before a time and of the first one after another: between them is all that happened then."""
    recorded = select(steps.c.position).where(holding(steps, position))
    steps_before = recorded.where(steps.c.occurred_ns < first_ns).order_by(
        steps.c.occurred_ns.desc(), steps.c.position.desc()
    )
    steps_after = recorded.where(steps.c.occurred_ns > last_ns).order_by(
        steps.c.occurred_ns, steps.c.position
    )
    return connection.scalar(steps_before.limit(1)) or 0, connection.scalar(steps_after.limit(1)) or position


def _first_batch(position: int) -> Any:
    """Position of the first batch that has an episode of the outer query."""
    return (
        select(func.min(batch_episodes.c.position))
        .where(batch_episodes.c.episode == episodes.c.episode, batch_episodes.c.position <= position)
        .correlate(episodes)
        .scalar_subquery()
    )


def _overlapping(connection: Connection, statement: Select[Any], since_ns: int) -> list[Wait]:
    """Waits that had not ended at the beginning of the stretch, in order."""
    waits = (Wait(entered, exited_ns) for entered, exited_ns in connection.execute(statement))
    return sorted(
        (wait for wait in waits if wait.left_ns is None or wait.left_ns > since_ns),
        key=lambda wait: (wait.entered_ns, wait.left_ns or 0),
    )
