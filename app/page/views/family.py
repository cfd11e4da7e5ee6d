"""How a task family's success changed between two policy versions, and which episodes show it: answered from the read model."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from hindcast.app.page.charts import CurvePoint, pool_versions
from hindcast.app.page.runs import PageQuery
from hindcast.core.errors import SettingsError
from hindcast.core.rl.statistics import Interval, difference
from hindcast.storage.readmodel.episode_queries import EpisodeRow, Narrowing, list_episodes
from hindcast.storage.readmodel.family_queries import (
    FamilyEpisodes,
    FamilyTraining,
    count_played_tasks,
    failure_reasons,
    family_training,
)
from hindcast.storage.readmodel.outcome_counts import (
    FamilyPoint,
    Tally,
    families_by_version,
    stretches,
    training_origin,
    training_tallies,
)
from hindcast.storage.readmodel.query_parts import Success, success_of

MOST_REASONS = 5
"""Most reasons of failures shown of each side."""
FEW_TASKS = 5
"""Tasks below which a change may be that of the tasks: episodes of one task are no independent sample of a family."""
MOST_FAILURES = 5
"""Most failed episodes shown."""


class Versions(NamedTuple):
    """Consecutive policy versions, counted together."""

    first: int
    last: int

    @property
    def text(self) -> str:
        """As an address has it: `3`, or `3-7`."""
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


class FailedEpisode(msgspec.Struct, frozen=True, kw_only=True):
    """A failed episode, and one of its group that succeeded."""

    episode: EpisodeRow
    success: str | None
    """Episode of the same group that succeeded; None: none did."""


class FamilySide(msgspec.Struct, frozen=True, kw_only=True):
    """A family under some policy versions."""

    versions: Versions
    success: Success
    tasks: int
    """Different tasks that those episodes played."""
    reasons: dict[str, int]
    """Number of failed episodes by the judge's reason, the most frequent first."""


class FamilyChange(msgspec.Struct, frozen=True, kw_only=True):
    """A family's success under some versions and under later ones, and what was trained between."""

    family: str
    families: list[str]
    """All families with a verdict, to choose from."""
    origin: str
    """Origin of the counted episodes."""
    before: FamilySide | None
    """None: one version alone played the family."""
    after: FamilySide
    change: Interval | None
    """Success after minus success before, with its 95 % interval."""
    few_tasks: bool
    """Whether one of the sides played fewer than `FEW_TASKS` tasks."""
    curve: list[CurvePoint]
    """Success of the family by policy version."""
    trained: FamilyTraining | None
    failures: list[FailedEpisode]
    """Failed episodes of the later versions, those with a success in their group first."""


def family_change(ask: PageQuery) -> FamilyChange | None:
    """The change that `family`, `since` and `until` name; None: no family was played by two versions yet.

    Without a family, the one that fell most. Without versions, the newest 30 judged episodes and the 30 before them, or
    where there are fewer, the newest two versions.

    Raises:
        SettingsError: the family has no verdict, or the versions are not in order.
    """
    known = training_tallies(ask.connection, as_of=ask.position)
    origin = training_origin(known)
    points = _points_by_family(known, origin)
    family = ask.word("family")
    if family is not None and family not in points:
        raise SettingsError(
            f"no judged episode is of family {family[:60]!r}; there are: {', '.join(sorted(points)) or 'none yet'}"
        )
    sides = {name: found for name in points if (found := _newest_sides(points[name])) is not None}
    if family is None:
        if not sides:
            return None
        family = min(sorted(sides), key=lambda name: _change(points[name], *sides[name]).rate)
    before, after = _chosen_sides(ask, points[family], sides.get(family))
    environment, _, name = family.rpartition("/")
    trained = before and family_training(
        ask.connection,
        environment,
        name,
        first_version=before.last,
        last_version=after.first,
        as_of=ask.position,
    )
    earlier = before and _side(ask, family, origin, points[family], before)
    later = _side(ask, family, origin, points[family], after)
    return FamilyChange(
        family=family,
        families=sorted(points),
        origin=origin,
        before=earlier,
        after=later,
        change=before and _change(points[family], before, after),
        few_tasks=min(later.tasks, FEW_TASKS if earlier is None else earlier.tasks) < FEW_TASKS,
        curve=pool_versions(_of_family(points[family], family)),
        trained=trained,
        failures=failed_episodes(ask, family, origin, after),
    )


def family_curves(ask: PageQuery, *, most: int) -> dict[str, list[CurvePoint]]:
    """Success of each family by policy version, in at most `most` points each; families in the order of their names."""
    known = training_tallies(ask.connection, as_of=ask.position)
    points = _points_by_family(known, training_origin(known))
    return {name: pool_versions(_of_family(points[name], name), most=most) for name in sorted(points)}


def _points_by_family(known: Sequence[Tally], origin: str) -> dict[str, list[FamilyPoint]]:
    """Judged episodes of each family by rising version."""
    points: dict[str, list[FamilyPoint]] = {}
    for version, families in families_by_version(known, origin=origin).items():
        for name, (won, judged) in families.items():
            if judged:
                points.setdefault(name, []).append(FamilyPoint(version, won, judged))
    return points


def _chosen_sides(
    ask: PageQuery, points: Sequence[FamilyPoint], newest: tuple[Versions, Versions] | None
) -> tuple[Versions | None, Versions]:
    """The versions that the address names, by default the newest; None before: one version alone played the family."""
    since, until = ask.span("since"), ask.span("until")
    if newest is None and (since is None or until is None):
        return None, Versions(points[-1].version, points[-1].version)
    before, after = newest or (None, None)
    before = Versions(*since) if since is not None else before
    after = Versions(*until) if until is not None else after
    assert before is not None
    assert after is not None
    if before.last >= after.first:
        raise SettingsError(
            f"since={before.text} must be policy versions before until={after.text}, such as since=3 and until=5"
        )
    return before, after


def failed_episodes(
    ask: PageQuery, family: str | None, origin: str, versions: Versions | None
) -> list[FailedEpisode]:
    """The newest failed episodes, those with a success in their group first. `family`, `versions` None: any."""
    environment, _, name = (family or "").rpartition("/")
    narrow = (
        Narrowing() if versions is None else Narrowing(version=versions.first, last_version=versions.last)
    )
    failed = list_episodes(
        ask.connection,
        as_of=ask.position,
        environment=environment or None,
        family=name or None,
        origin=origin,
        outcome="failure",
        narrow=narrow,
        limit=MOST_FAILURES,
    )
    found = [FailedEpisode(episode=row, success=_success_in_group(ask, row)) for row in failed]
    return sorted(found, key=lambda one: one.success is None)


def _success_in_group(ask: PageQuery, row: EpisodeRow) -> str | None:
    if row.group_id is None:
        return None
    own = Narrowing(group=row.group_id)
    won = list_episodes(ask.connection, as_of=ask.position, outcome="success", narrow=own, limit=1)
    return won[0].episode if won else None


def _newest_sides(points: Sequence[FamilyPoint]) -> tuple[Versions, Versions] | None:
    """The newest stretch of versions of a family and the one before it; None: one version alone played it."""
    found = stretches(points)
    if len(found) >= 2:
        after, before = (Versions(one.first_version, one.last_version) for one in found[:2])
        return before, after
    if len(points) < 2:
        return None
    before, after = (Versions(one.version, one.version) for one in points[-2:])
    return before, after


def _counts(points: Sequence[FamilyPoint], versions: Versions) -> tuple[int, int]:
    """Successes and judged episodes."""
    own = [one for one in points if versions.first <= one.version <= versions.last]
    return sum(one.successes for one in own), sum(one.judged for one in own)


def _change(points: Sequence[FamilyPoint], before: Versions, after: Versions) -> Interval:
    return difference(*_counts(points, before), *_counts(points, after))


def _of_family(points: Sequence[FamilyPoint], family: str) -> Mapping[int, dict[str, tuple[int, int]]]:
    return {one.version: {family: (one.successes, one.judged)} for one in points}


def _side(
    ask: PageQuery, family: str, origin: str, points: Sequence[FamilyPoint], versions: Versions
) -> FamilySide:
    environment, _, name = family.rpartition("/")
    won, judged = _counts(points, versions)
    wanted = FamilyEpisodes(environment, name, origin, versions.first, versions.last)
    return FamilySide(
        versions=versions,
        success=success_of({"success": won, "failure": judged - won}),
        tasks=count_played_tasks(ask.connection, wanted, as_of=ask.position),
        reasons=failure_reasons(ask.connection, wanted, as_of=ask.position, limit=MOST_REASONS),
    )
