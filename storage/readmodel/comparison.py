"""Compares two runs: where they part, which settings differ, how success and updates differ. Made for a fork and its parent.

Read-only. Rates and their differences have intervals.
"""

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, NamedTuple

import msgspec
from pydantic import ValidationError
from sqlalchemy import ColumnElement, Connection, case, false, func, select

from hindcast.core.errors import SettingsError
from hindcast.core.rl.statistics import Interval, gap, standardized
from hindcast.core.settings.changes import decode_settings, flatten_settings
from hindcast.storage.readmodel.outcome_counts import (
    Families,
    Tally,
    families_by_version,
    merge_families,
    training_origin,
    training_tallies,
)
from hindcast.storage.readmodel.query_parts import (
    OUTCOMES,
    NotInReadModel,
    Success,
    holding,
    in_order,
    of_this_run,
    position_of,
    success_of,
)
from hindcast.storage.readmodel.tables import episodes, runs, updates, weights


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that differs between the runs."""

    key: str
    left: Any
    right: Any


class ComparedPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Success of online episodes under one policy version, or under several, in both runs."""

    version: int
    last_version: int
    """Differs from `version` if several consecutive versions are counted together."""
    left: Success | None
    """None: the run has no episode, or no verdict yet, of the versions."""
    right: Success | None
    left_weighted: Interval | None
    """Every family weighted by its share of the judged online episodes of both runs; None where `left` is."""
    right_weighted: Interval | None
    shared: bool
    """Whether the versions were played before the runs part: some episodes may be the same."""
    gain: tuple[float, float, float] | None
    """Right minus left of the weighted rates, and its 95 % interval; None if one is missing, or if episodes are partly the same."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One optimizer step in both runs; metrics by name."""

    update: int
    left: dict[str, float] | None
    right: dict[str, float] | None
    same: bool
    """Whether both runs had the same weights and optimizer state after it."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Comparison of two runs as of now."""

    left: str
    right: str
    parted_at: int | None
    """Last position that both logs share; None: they share no events."""
    left_updates: int
    right_updates: int
    settings: tuple[Setting, ...]
    success: tuple[ComparedPoint, ...]
    updates: tuple[Step, ...]
    """The first updates after the runs part."""
    updates_apart: int
    """Number of such updates."""
    updates_alike: int
    """Updates after the runs part that gave both the same weights; 0 if the runs share no beginning."""


class Played(NamedTuple):
    """Online episodes of one version, or of several."""

    success: int
    failure: int
    undecided: int
    families: Families


def compare_runs(
    left: Connection,
    right: Connection,
    *,
    played: tuple[Mapping[int, Played], Mapping[int, Played]] | None = None,
    most_points: int | None = None,
    most_updates: int | None = None,
) -> Comparison:
    """Compare both read models as they are now. Beyond `most_points` versions, neighbors are counted together; None: no limit.

    `played`: `played_by_version` of both, if it is known.

    Raises:
        NotInReadModel: one of them is still empty.
    """
    left_stretches, right_stretches = _descent(left), _descent(right)
    parted_at = _parted_at(left_stretches, right_stretches)
    shared = -1 if parted_at is None else _newest_played(left, parted_at)
    left_played, right_played = played or (
        played_by_version(training_tallies(connection)) for connection in (left, right)
    )
    steps, apart, alike = _steps(left, right, parted_at, most_updates)
    return Comparison(
        left=left_stretches[-1].run,
        right=right_stretches[-1].run,
        parted_at=parted_at,
        left_updates=_count(left),
        right_updates=_count(right),
        settings=tuple(_settings(left, right)),
        success=tuple(_points(left_played, right_played, shared, most_points)),
        updates=tuple(steps),
        updates_apart=apart,
        updates_alike=alike,
    )


def common_position(connections: Sequence[Connection]) -> int | None:
    """Last position that the logs of all these read models share; None: they have no common beginning.

    Raises:
        NotInReadModel: one of them is still empty.
    """
    first, *other_descents = (_descent(connection) for connection in connections)
    parted = [_parted_at(first, stretches) for stretches in other_descents]
    return (
        min((position for position in parted if position is not None), default=None)
        if None not in parted
        else None
    )


def newest_version_and_update(connection: Connection, *, as_of: int | None = None) -> tuple[int, int]:
    """Newest published policy version, and number of the policy's last applied update; 0 where there is none yet."""
    position = position_of(connection, as_of)
    version = select(func.max(weights.c.version)).where(
        weights.c.model == "policy", weights.c.valid_from <= position
    )
    update = select(func.max(updates.c.update_number)).where(*APPLIED, updates.c.position <= position)
    return int(connection.scalar(version) or 0), int(connection.scalar(update) or 0)


def settings_apart(connections: Sequence[Connection]) -> dict[str, list[Any]]:
    """Settings that are not the same in all these runs: the value of each, None where it has none."""
    flat = [
        flat_settings(connection.scalar(of_this_run(select(runs.c.settings), position_of(connection, None))))
        for connection in connections
    ]
    values = {
        key: [settings.get(key) for settings in flat]
        for key in sorted({key for settings in flat for key in settings})
    }
    return {
        key: setting_values
        for key, setting_values in values.items()
        if any(settings != setting_values[0] for settings in setting_values)
    }


class _Stretch(NamedTuple):
    """The events that one run recorded of a log."""

    run: str
    started_ns: int | None
    """Distinguishes runs of one name."""
    until: int | None
    """Its last position that is part of the log; None: the run itself."""


def _descent(connection: Connection) -> list[_Stretch]:
    """The runs whose events make up a run's log, oldest first."""
    columns = (runs.c.run, runs.c.started_ns, runs.c.forked_at)
    statement = select(*columns).where(holding(runs, position_of(connection, None)))
    rows = connection.execute(statement.order_by(*in_order(runs.c.forked_at))).all()
    if not rows:
        raise NotInReadModel("one of the two read models knows nothing of its run yet")
    ends = [*(row.forked_at for row in rows[1:]), None]
    return [_Stretch(row.run, row.started_ns, end) for row, end in zip(rows, ends, strict=True)]


def _parted_at(left: list[_Stretch], right: list[_Stretch]) -> int | None:
    """Position at which one was forked from the other, or both from a third."""
    parted_at = None
    for left_stretch, right_stretch in zip(left, right, strict=False):
        if (left_stretch.run, left_stretch.started_ns) != (right_stretch.run, right_stretch.started_ns):
            break
        parted_at = min(
            (end for end in (left_stretch.until, right_stretch.until) if end is not None), default=None
        )
        if left_stretch.until != right_stretch.until:
            break
    return parted_at


def _newest_played(connection: Connection, position: int) -> int:
    """The newest version with an ended episode up to there: both runs have it, whichever judge judged it."""
    played = select(func.max(episodes.c.version_low)).where(holding(episodes, position))
    return int(connection.scalar(played) or 0)


def _settings(left: Connection, right: Connection) -> list[Setting]:
    return [
        Setting(key=key, left=left_value, right=right_value)
        for key, (left_value, right_value) in settings_apart((left, right)).items()
    ]


def flat_settings(recorded: str | None) -> dict[str, Any]:
    """Recorded settings, as JSON text, by their full names."""
    sections = json.loads(recorded) if recorded else {}
    try:  # settings that older code lacked have their default
        return flatten_settings(decode_settings(sections))
    except (ValidationError, SettingsError):
        return {
            f"{section}.{name}": value
            for section, values in sections.items()
            for name, value in values.items()
        }


def played_by_version(tallies: Sequence[Tally]) -> dict[int, Played]:
    """Outcomes of online episodes, or imported ones, by the version that began them."""
    origin = training_origin(tallies)
    undecided: dict[int, int] = defaultdict(int)
    for tally in tallies:
        if tally.undecided and tally.origin == origin and tally.version is not None:
            undecided[tally.version] += tally.undecided
    results = {}
    for version, families in families_by_version(tallies, origin=origin).items():
        success = sum(won for won, _ in families.values())
        judged = sum(played for _, played in families.values())
        results[version] = Played(success, judged - success, undecided[version], families)
    return results


def _points(
    left: Mapping[int, Played], right: Mapping[int, Played], shared: int, max_points: int | None
) -> list[ComparedPoint]:
    """Points in the order of versions; none mixes shared versions with others."""
    versions = sorted({*left, *right})
    standard = merge_families(played.families for played in (*left.values(), *right.values()))
    size = 1 if max_points is None else max(1, ceil(len(versions) / max_points))
    split = bisect_right(versions, shared)
    points = []
    for side in (versions[:split], versions[split:]):
        for start in range(0, len(side), size):
            together = side[start : start + size]
            left_success, our_rate = _pooled_success(left, together, standard)
            right_success, their_rate = _pooled_success(right, together, standard)
            gain = None
            apart = together[0] > shared
            if apart and our_rate is not None and their_rate is not None:
                interval = gap(our_rate, their_rate)
                gain = (interval.rate, interval.low, interval.high)
            points.append(
                ComparedPoint(
                    version=together[0],
                    last_version=together[-1],
                    left=left_success,
                    right=right_success,
                    left_weighted=our_rate,
                    right_weighted=their_rate,
                    shared=not apart,
                    gain=gain,
                )
            )
    return points


def _pooled_success(
    played: Mapping[int, Played], versions: Sequence[int], standard: Families
) -> tuple[Success | None, Interval | None]:
    """Success under all these versions: as played, and weighted if any episode is judged."""
    pooled = [played[version] for version in versions if version in played]
    if not pooled:
        return None, None
    success = success_of(
        {name: sum(getattr(version_results, name) for version_results in pooled) for name in OUTCOMES}
    )
    families = merge_families(version_results.families for version_results in pooled)
    return success, standardized(families, standard) if success.judged else None


APPLIED = (updates.c.model == "policy", updates.c.outcome == "applied")


def _count(connection: Connection) -> int:
    return connection.scalar(select(func.count()).select_from(updates).where(*APPLIED)) or 0


def _numbers(connection: Connection) -> set[int]:
    """Numbers of all steps."""
    return set(connection.scalars(select(updates.c.update_number).where(*APPLIED)).all())


def _states(connection: Connection, *where: ColumnElement[bool]) -> dict[int, str]:
    """By step what differs if the weights after it do: their digest, else what the step was computed from and its metrics.

    Large models record a digest at intervals (`learner.digest_every`).
    """
    computed = updates.c.inputs + updates.c.metrics
    state = case((updates.c.after == "", computed), else_=updates.c.after)
    statement = select(updates.c.update_number, state).where(*APPLIED, *where)
    return dict(connection.execute(statement.order_by(updates.c.position)).all())


def _steps(
    left: Connection, right: Connection, parted_at: int | None, max_updates: int | None
) -> tuple[list[Step], int, int]:
    """The first steps after the runs part, the number of such steps, and the number of equal ones left out.

    Runs that share a beginning show only the steps that differ.
    """
    if parted_at is None:
        numbers = sorted(_numbers(left) | _numbers(right))
        apart, alike = len(numbers), 0
        numbers_shown = numbers[:max_updates]
        span = (
            updates.c.update_number.between(numbers_shown[0], numbers_shown[-1]) if numbers_shown else false()
        )
        left_states, right_states = (_states(connection, span) for connection in (left, right))
    else:
        left_states, right_states = (
            _states(connection, updates.c.position > parted_at) for connection in (left, right)
        )
        every = sorted({*left_states, *right_states})
        differing = [number for number in every if left_states.get(number) != right_states.get(number)]
        apart, alike = len(differing), len(every) - len(differing)
        numbers_shown = differing[:max_updates]
    left_metrics, right_metrics = (_metrics(connection, numbers_shown) for connection in (left, right))
    steps = [
        Step(
            update=number,
            left=left_metrics.get(number),
            right=right_metrics.get(number),
            same=left_states.get(number) == right_states.get(number),
        )
        for number in numbers_shown
    ]
    return steps, apart, alike


def _metrics(connection: Connection, numbers: Sequence[int]) -> dict[int, dict[str, float]]:
    if not numbers:
        return {}
    statement = select(updates.c.update_number, updates.c.metrics).where(
        *APPLIED, updates.c.update_number.between(numbers[0], numbers[-1])
    )
    rows = connection.execute(statement.order_by(updates.c.position))
    return {number: json.loads(text) for number, text in rows}
