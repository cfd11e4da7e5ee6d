"""Metrics of the policy's updates, and rates of the whole run.

Metrics are exact at any length of the run: lowest, highest and last value of each stretch of updates.
"""

from collections import defaultdict
from typing import Any

import msgspec
from sqlalchemy import Connection, func, select

from hindcast.storage.readmodel.block_sums import POLICY, applied_metrics, ended_by
from hindcast.storage.readmodel.query_parts import also_holding, holding, newest_ns, of_this_run, position_of
from hindcast.storage.readmodel.tables import block_metrics, episodes, runs, steps, updates, verdicts


class MetricColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A metric over one update, or over several consecutive ones."""

    first: int
    """Number of the first update."""
    last: int
    updates: int
    """Number of updates with a value."""
    low: float
    high: float
    value: float
    """Value of the last update."""


class Throughput(msgspec.Struct, frozen=True, kw_only=True):
    """Rates over the latest stretch of recorded time, by the producers' clocks."""

    window_s: float
    """Length of the stretch; shorter than requested if the run is younger."""
    episodes: int
    """Episodes that ended in it."""
    steps: int
    updates: int
    episodes_per_minute: float
    steps_per_second: float
    updates_per_minute: float
    answer_tokens_per_second: float
    learner_busy: float
    """Share of the time in which an update was computed."""
    mean_observe_ms: float | None
    mean_generate_ms: float | None
    mean_act_ms: float | None


ONE_BY_ONE = 2400
"""Updates up to which each has its own column; beyond, those of a finished block are combined, up to 16 each."""


def update_metrics(
    connection: Connection, *, as_of: int | None = None, names: tuple[str, ...] | None = None
) -> dict[str, list[MetricColumn]]:
    """Columns by metric, in the order of updates; of applied updates with a numeric value. `names` None: all metrics."""
    position = position_of(connection, as_of)
    blocks_to = ended_by(position) if _count_applied(connection, position) > ONE_BY_ONE else 0
    columns: dict[str, list[MetricColumn]] = defaultdict(list)
    if blocks_to:
        statement: Any = select(
            block_metrics.c.metric,
            block_metrics.c.first_update,
            block_metrics.c.last_update,
            block_metrics.c.updates,
            block_metrics.c.low,
            block_metrics.c.high,
            block_metrics.c.last,
        ).where(block_metrics.c.position <= blocks_to)
        if names is not None:
            statement = statement.where(block_metrics.c.metric.in_(names))
        ordered = statement.order_by(
            block_metrics.c.position, block_metrics.c.metric, block_metrics.c.first_update
        )
        for metric, first, last, number, low, high, value in connection.execute(ordered).all():
            columns[metric].append(
                MetricColumn(first=first, last=last, updates=number, low=low, high=high, value=value)
            )
    for update, metric, value in applied_metrics(connection, blocks_to, position):
        if names is None or metric in names:
            columns[metric].append(
                MetricColumn(first=update, last=update, updates=1, low=value, high=value, value=value)
            )
    return dict(columns)


def _count_applied(connection: Connection, position: int) -> int:
    """Applied updates of the policy."""
    statement = select(func.count()).where(
        holding(updates, position), updates.c.model == POLICY, updates.c.outcome == "applied"
    )
    return connection.scalar(statement) or 0


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
    step_totals = connection.execute(
        select(
            func.count(),
            func.coalesce(func.sum(steps.c.answer_tokens), 0),
            func.avg(steps.c.observe_ms),
            func.avg(steps.c.generate_ms),
            func.avg(steps.c.act_ms),
        ).where(holding(steps, position), steps.c.occurred_ns.between(since_ns + 1, until_ns))
    ).one()
    ended_count = connection.scalar(
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
        episodes=ended_count or 0,
        steps=step_totals[0],
        updates=applied[0],
        episodes_per_minute=per(ended_count or 0, 60),
        steps_per_second=per(step_totals[0], 1),
        updates_per_minute=per(applied[0], 60),
        answer_tokens_per_second=per(step_totals[1], 1),
        learner_busy=min(1.0, per(applied[1] / 1000, 1)),
        mean_observe_ms=step_totals[2],
        mean_generate_ms=step_totals[3],
        mean_act_ms=step_totals[4],
    )
