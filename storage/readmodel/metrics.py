"""Metrics of the policy's updates over a whole run, exact at any length: lowest, highest and last value of each stretch."""

from collections import defaultdict
from typing import Any

from sqlalchemy import Connection, func, select

from hindcast.storage.readmodel.block_sums import POLICY, applied, ended_by
from hindcast.storage.readmodel.query_parts import holding, position_of
from hindcast.storage.readmodel.results import MetricColumn
from hindcast.storage.readmodel.tables import block_metrics, updates

ONE_BY_ONE = 2400
"""Updates up to which each has its own column; beyond, those of a finished block are combined, up to 16 each."""


def update_metrics(
    connection: Connection, *, as_of: int | None = None, names: tuple[str, ...] | None = None
) -> dict[str, list[MetricColumn]]:
    """Columns by metric, in the order of updates; of applied updates with a numeric value. `names` None: all metrics."""
    position = position_of(connection, as_of)
    since = ended_by(position) if _count(connection, position) > ONE_BY_ONE else 0
    columns: dict[str, list[MetricColumn]] = defaultdict(list)
    if since:
        kept: Any = select(
            block_metrics.c.metric,
            block_metrics.c.first_update,
            block_metrics.c.last_update,
            block_metrics.c.updates,
            block_metrics.c.low,
            block_metrics.c.high,
            block_metrics.c.last,
        ).where(block_metrics.c.position <= since)
        if names is not None:
            kept = kept.where(block_metrics.c.metric.in_(names))
        ordered = kept.order_by(
            block_metrics.c.position, block_metrics.c.metric, block_metrics.c.first_update
        )
        for metric, first, last, number, low, high, value in connection.execute(ordered):
            columns[metric].append(
                MetricColumn(first=first, last=last, updates=number, low=low, high=high, value=value)
            )
    for update, metric, value in applied(connection, since, position):
        if names is None or metric in names:
            columns[metric].append(
                MetricColumn(first=update, last=update, updates=1, low=value, high=value, value=value)
            )
    return dict(columns)


def _count(connection: Connection, position: int) -> int:
    """Applied updates of the policy."""
    own = select(func.count()).where(
        holding(updates, position), updates.c.model == POLICY, updates.c.outcome == "applied"
    )
    return connection.scalar(own) or 0
