"""Two runs side by side: where they part, which settings differ, what came of it. A fork and its parent above all.

Only reads. Rates stand with their intervals, and so do differences of rates.
"""

import json
from typing import Any, NamedTuple

import msgspec
from pydantic import ValidationError
from sqlalchemy import Connection, func, select

from core.settings import Settings
from core.statistics import difference
from storage.readmodel.answers import Success, VersionSuccess
from storage.readmodel.asking import holding, in_order, of_this_run, position_of
from storage.readmodel.queries import run_summary
from storage.readmodel.tables import episodes, runs, updates


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that is not the same."""

    key: str
    left: Any
    right: Any


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """Success of online episodes under one policy version, in both runs."""

    version: int
    left: Success | None
    """None: the run has no episode of this version, or no verdict yet."""
    right: Success | None
    shared: bool
    """Of a version that was played before the runs part: some of the episodes may be the same."""
    gain: tuple[float, float, float] | None
    """Right minus left, and its 95 % interval (Newcombe's); None where one is missing, or where the episodes are partly the same."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One optimiser step in both runs; metrics by name."""

    update: int
    left: dict[str, float] | None
    right: dict[str, float] | None
    same: bool
    """Whether both runs had the same weights and optimiser state after it."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two runs as of now."""

    left: str
    right: str
    parted_at: int | None
    """Last position that both logs share; None: no run is the beginning of both."""
    left_updates: int
    right_updates: int
    settings: tuple[Setting, ...]
    success: tuple[Point, ...]
    updates: tuple[Step, ...]
    """Those after the runs part."""


def compare_runs(left: Connection, right: Connection) -> Comparison:
    """Both read models as they stand.

    Raises:
        NotInReadModel: one of them knows nothing yet.

    """
    one, other = run_summary(left), run_summary(right)
    parted_at = _parted_at(_descent(left), _descent(right))
    steps = [step for step in _steps(left, right) if parted_at is None or not step.same]
    shared = -1 if parted_at is None else _newest_played(left, parted_at)
    return Comparison(
        left=one.run,
        right=other.run,
        parted_at=parted_at,
        left_updates=one.updates,
        right_updates=other.updates,
        settings=tuple(_settings(left, right)),
        success=tuple(_points(one.success, other.success, shared)),
        updates=tuple(steps),
    )


class _Stretch(NamedTuple):
    """What one run recorded of a log."""

    run: str
    started_ns: int | None
    """Tells runs of one name apart."""
    until: int | None
    """Its last position that is part of the log; None: it is the run itself."""


def _descent(connection: Connection) -> list[_Stretch]:
    """The runs whose events make up a run's log, oldest first."""
    columns = (runs.c.run, runs.c.started_ns, runs.c.forked_at)
    held = select(*columns).where(holding(runs, position_of(connection, None)))
    rows = connection.execute(held.order_by(*in_order(runs.c.forked_at))).all()
    ends = [*(row.forked_at for row in rows[1:]), None]
    return [_Stretch(row.run, row.started_ns, until) for row, until in zip(rows, ends, strict=True)]


def _parted_at(left: list[_Stretch], right: list[_Stretch]) -> int | None:
    """Where one was forked from the other, or both from a third."""
    parted_at = None
    for one, other in zip(left, right, strict=False):
        if (one.run, one.started_ns) != (other.run, other.started_ns):
            break
        parted_at = min((end for end in (one.until, other.until) if end is not None), default=None)
        if one.until != other.until:
            break
    return parted_at


def _newest_played(connection: Connection, position: int) -> int:
    """The newest version of which an episode ended up to there: both runs have it, whoever judged it."""
    played = select(func.max(episodes.c.version_low)).where(holding(episodes, position))
    return int(connection.scalar(played) or 0)


def _settings(left: Connection, right: Connection) -> list[Setting]:
    one, other = (_flat(connection) for connection in (left, right))
    return [
        Setting(key=key, left=one.get(key), right=other.get(key))
        for key in sorted({*one, *other})
        if one.get(key) != other.get(key)
    ]


def _flat(connection: Connection) -> dict[str, Any]:
    text = connection.scalar(of_this_run(select(runs.c.settings), position_of(connection, None)))
    recorded = json.loads(text) if text else {}
    try:  # what older code did not know yet has its default
        sections: dict[str, dict[str, Any]] = Settings.model_validate(recorded).model_dump(mode="json")
    except ValidationError:
        sections = recorded
    return {
        f"{section}.{name}": value for section, values in sections.items() for name, value in values.items()
    }


def _points(left: tuple[VersionSuccess, ...], right: tuple[VersionSuccess, ...], shared: int) -> list[Point]:
    one, other = ({p.version: p.success for p in side if p.origin == "online"} for side in (left, right))
    found = []
    for version in sorted({*one, *other}):
        ours, theirs = one.get(version), other.get(version)
        gain = None
        apart = version > shared
        if apart and ours is not None and theirs is not None and ours.judged and theirs.judged:
            known = difference(ours.successes, ours.judged, theirs.successes, theirs.judged)
            gain = (known.rate, known.low, known.high)
        found.append(Point(version=version, left=ours, right=theirs, shared=not apart, gain=gain))
    return found


def _steps(left: Connection, right: Connection) -> list[Step]:
    one, other = _applied(left), _applied(right)
    found = []
    for number in sorted({*one, *other}):
        ours, theirs = one.get(number), other.get(number)
        found.append(
            Step(
                update=number,
                left=None if ours is None else ours[1],
                right=None if theirs is None else theirs[1],
                same=ours is not None and theirs is not None and ours[0] == theirs[0],
            )
        )
    return found


def _applied(connection: Connection) -> dict[int, tuple[str, dict[str, float]]]:
    statement = select(updates.c.update_number, updates.c.after, updates.c.metrics).where(
        updates.c.model == "policy", updates.c.outcome == "applied"
    )
    return {row.update_number: (row.after, json.loads(row.metrics)) for row in connection.execute(statement)}
