"""Rates of a run over its latest stretch of time."""

from sqlalchemy import Connection, func, select

from hindcast.storage.readmodel.query_parts import also_holding, holding, newest_ns, of_this_run, position_of
from hindcast.storage.readmodel.results import Throughput
from hindcast.storage.readmodel.tables import episodes, runs, steps, updates, verdicts

WINDOW_S = 300.0
"""Seconds over which throughput is measured."""
NANOSECONDS = 1_000_000_000


def throughput(connection: Connection, *, as_of: int | None = None, window_s: float = WINDOW_S) -> Throughput:
    """Rates over the last `window_s` before the newest recorded event."""
    position = position_of(connection, as_of)
    newest = [newest_ns(connection, table, position) for table in (steps, verdicts, updates)]
    until_ns = max((at for at in newest if at is not None), default=0)
    started_ns = connection.scalar(of_this_run(select(runs.c.started_ns), position))
    since_ns = max(until_ns - int(window_s * NANOSECONDS), started_ns or 0)
    seconds = max((until_ns - since_ns) / NANOSECONDS, 0.0)
    taken = connection.execute(
        select(
            func.count(),
            func.coalesce(func.sum(steps.c.answer_tokens), 0),
            func.avg(steps.c.observe_ms),
            func.avg(steps.c.generate_ms),
            func.avg(steps.c.act_ms),
        ).where(holding(steps, position), steps.c.occurred_ns.between(since_ns + 1, until_ns))
    ).one()
    ended = connection.scalar(
        select(func.count()).where(
            also_holding(episodes, position),
            episodes.c.state == "ended",
            episodes.c.terminal_ns.between(since_ns + 1, until_ns),
        )
    )
    applied = connection.execute(
        select(func.count(), func.coalesce(func.sum(updates.c.duration_ms), 0.0)).where(
            holding(updates, position),
            updates.c.outcome == "applied",
            updates.c.occurred_ns.between(since_ns + 1, until_ns),
        )
    ).one()

    def per(count: float, unit_s: float) -> float:
        return float(count) * unit_s / seconds if seconds else 0.0  # PostgreSQL sums to decimals

    return Throughput(
        window_s=seconds,
        episodes=ended or 0,
        steps=taken[0],
        updates=applied[0],
        episodes_per_minute=per(ended or 0, 60),
        steps_per_second=per(taken[0], 1),
        updates_per_minute=per(applied[0], 60),
        answer_tokens_per_second=per(taken[1], 1),
        learner_busy=min(1.0, per(applied[1] / 1000, 1)),
        mean_observe_ms=taken[2],
        mean_generate_ms=taken[3],
        mean_act_ms=taken[4],
    )
