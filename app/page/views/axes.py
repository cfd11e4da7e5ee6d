"""Horizontal axes of charts: over what the values of updates and of policy versions are drawn."""

from bisect import bisect_right
from collections.abc import Collection
from typing import Any

import msgspec
from sqlalchemy import Connection, func, select

from hindcast.events.catalogue.curriculum import ONLINE
from hindcast.storage.readmodel.block_sums import POLICY
from hindcast.storage.readmodel.query_parts import holding, training_judge
from hindcast.storage.readmodel.tables import judged, runs, updates, weights

AXES = {
    "update": "update",
    "policy": "policy version",
    "position": "position in the log",
    "episodes": "judged online episodes",
    "time": "minutes since the run began",
}
"""Axes by their names in the address."""
MINUTE_NS = 60_000_000_000
MOST_ASKED = 500
"""Most numbers that one query names."""


class Axis(msgspec.Struct, frozen=True, kw_only=True):
    """A horizontal axis for one run. Without a name, updates and policy versions are drawn over their own numbers."""

    name: str = ""
    """One of `AXES`, or empty."""
    of_versions: dict[int, float] = {}
    """Policy version -> its place."""
    of_updates: dict[int, float] = {}
    """Number of an update -> its place."""

    def label(self, unit: str) -> str:
        """What the axis of a chart counts whose values belong to a `unit`: `policy` or `update`."""
        return AXES[self.name or unit]

    def place(self, unit: str, number: int) -> float | None:
        """Where the value of a policy version or of an update is drawn; None: nowhere, its event is not known."""
        if self.name in ("", unit):
            return number
        return (self.of_versions if unit == "policy" else self.of_updates).get(number)


def find_axis(
    connection: Connection,
    position: int,
    name: str,
    *,
    versions: Collection[int] = (),
    numbers: Collection[int] = (),
) -> Axis:
    """The axis of this name, with the places of the given policy versions and updates."""
    if name not in AXES:
        return Axis()
    wanted = None if name == "policy" else versions  # an update's version is found among all
    published = _published(connection, position, wanted)
    applied = _applied(connection, position, numbers) if name in ("position", "episodes", "time") else {}
    if name == "time":
        began = connection.scalar(select(func.min(runs.c.started_ns)).where(holding(runs, position))) or 0
        return Axis(
            name=name,
            of_versions={v: _minutes(published[v][2], began) for v in versions if v in published},
            of_updates={n: _minutes(occurred_ns, began) for n, (_, occurred_ns) in applied.items()},
        )
    if name == "position":
        return Axis(
            name=name,
            of_versions={v: published[v][1] for v in versions if v in published},
            of_updates={n: at for n, (at, _) in applied.items()},
        )
    if name == "episodes":
        judged_at = _judged_online(connection, position)
        return Axis(
            name=name,
            of_versions={v: bisect_right(judged_at, published[v][1]) for v in versions if v in published},
            of_updates={n: bisect_right(judged_at, at) for n, (at, _) in applied.items()},
        )
    ordered, after = list(published), [at_update for at_update, _, _ in published.values()]
    newest = {n: bisect_right(after, n) - 1 for n in numbers}
    return Axis(
        name=name,
        of_versions={v: published[v][0] for v in versions if v in published},
        of_updates={n: ordered[place] for n, place in newest.items() if place >= 0},
    )


def _published(
    connection: Connection, position: int, versions: Collection[int] | None
) -> dict[int, tuple[int, int, int]]:
    """Update, position and time of publication of the given policy versions, in order; None: of all."""
    columns = (weights.c.version, weights.c.at_update, weights.c.valid_from, weights.c.occurred_ns)
    statement = select(*columns).where(holding(weights, position), weights.c.model == POLICY)
    rows: list[Any] = []
    if versions is None:
        rows += connection.execute(statement.order_by(weights.c.version)).all()
    else:
        ordered = sorted(versions)
        for start in range(0, len(ordered), MOST_ASKED):
            rows += connection.execute(
                statement.where(weights.c.version.in_(ordered[start : start + MOST_ASKED])).order_by(
                    weights.c.version
                )
            ).all()
    return {version: (at_update or 0, at, occurred_ns) for version, at_update, at, occurred_ns in rows}


def _minutes(at_ns: int, began_ns: int) -> float:
    return round((at_ns - began_ns) / MINUTE_NS, 3)


def _judged_online(connection: Connection, position: int) -> list[int]:
    """Position of the training judge's verdict on each online episode, in order."""
    said = select(judged.c.valid_from).where(
        judged.c.judge == training_judge(connection, as_of=position),
        judged.c.origin == ONLINE,
        judged.c.valid_from <= position,
    )
    return sorted(connection.scalars(said))


def _applied(connection: Connection, position: int, numbers: Collection[int]) -> dict[int, Any]:
    """Position and time of the policy's applied updates with these numbers."""
    found: dict[int, Any] = {}
    ordered = sorted(numbers)
    for start in range(0, len(ordered), MOST_ASKED):
        asked = select(updates.c.update_number, updates.c.position, updates.c.occurred_ns).where(
            holding(updates, position),
            updates.c.model == POLICY,
            updates.c.outcome == "applied",
            updates.c.update_number.in_(ordered[start : start + MOST_ASKED]),
        )
        for number, at, occurred_ns in connection.execute(asked):
            found[number] = (at, occurred_ns)
    return found
