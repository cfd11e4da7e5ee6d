"""Counts of episodes by state, origin, family and verdict, and the facets made of them.

Summed from blocks of the log (`storage.readmodel.block_sums`) and the changes since. A condition that blocks do not count by,
such as a task or a text, is counted from the episodes themselves.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec
from sqlalchemy import Connection, and_, func, null, select

from hindcast.storage.readmodel.block_sums import EpisodeKind, ended_by, kinds_changed
from hindcast.storage.readmodel.episode_queries import ALL, Narrowing
from hindcast.storage.readmodel.query_parts import also_holding, position_of
from hindcast.storage.readmodel.tables import block_episodes, episodes, judged

FACETS: dict[str, Callable[[EpisodeKind], str | None]] = {
    "outcome": lambda kind: kind.outcome,
    "state": lambda kind: kind.state,
    "origin": lambda kind: kind.origin,
    "environment": lambda kind: kind.environment,
    "family": lambda kind: None if kind.family is None else f"{kind.environment}/{kind.family}",
    "judge": lambda kind: kind.judge,
}
"""What episodes can be counted by, by the name of the filter that chooses a value."""


class FacetValue(msgspec.Struct, frozen=True, kw_only=True):
    """A value to filter by."""

    value: str
    count: int
    """Episodes that have it and match all other filters."""
    chosen: bool


def count_episodes(
    connection: Connection, *, as_of: int | None = None, narrow: Narrowing = ALL
) -> dict[EpisodeKind, int]:
    """Number of episodes of each kind that occurs."""
    position = position_of(connection, as_of)
    conditions = narrow.conditions(connection, position)
    counts = _count_rows(connection, position, conditions) if conditions else _summed(connection, position)
    return {kind: counts[kind] for kind in sorted(counts, key=_order) if counts[kind]}


def count_states(connection: Connection, *, as_of: int | None = None) -> dict[str, int]:
    """Number of episodes in each state that occurs, by its name."""
    position = position_of(connection, as_of)
    counts: dict[str, int] = defaultdict(int)
    for kind, number in _summed(connection, position).items():
        if kind.judge is None:
            counts[kind.state] += number
    return {state: counts[state] for state in sorted(counts) if counts[state]}


def _summed(connection: Connection, position: int) -> dict[EpisodeKind, int]:
    kind = [block_episodes.c[name] for name in EpisodeKind._fields]
    block_rows = (
        select(*kind, func.sum(block_episodes.c.number))
        .where(block_episodes.c.position <= position)
        .group_by(*kind)
    )
    counts: dict[EpisodeKind, int] = defaultdict(int)
    for *about, number in connection.execute(block_rows):
        counts[EpisodeKind(*about)] = int(number)  # PostgreSQL sums to decimals
    for changed_kind, number in kinds_changed(connection, ended_by(position), position).items():
        counts[changed_kind] += number
    return counts


def _count_rows(connection: Connection, position: int, conditions: Collection[Any]) -> dict[EpisodeKind, int]:
    kind = (episodes.c.state, episodes.c.origin, episodes.c.environment, episodes.c.family)
    holds = (also_holding(episodes, position), *conditions)
    verdict = and_(judged.c.episode == episodes.c.episode, judged.c.valid_from <= position)
    statements = (
        select(null(), null(), *kind, func.count()).where(*holds).group_by(*kind),
        select(judged.c.judge, judged.c.outcome, *kind, func.count())
        .select_from(episodes.join(judged, verdict))
        .where(*holds)
        .group_by(judged.c.judge, judged.c.outcome, *kind),
    )
    return {
        EpisodeKind(*about): number
        for statement in statements
        for *about, number in connection.execute(statement)
    }


def _order(kind: EpisodeKind) -> list[tuple[bool, Any]]:
    return [(value is not None, value) for value in kind]


def facets(
    counts: Mapping[EpisodeKind, int], chosen: Mapping[str, str], *, judge: str, begun: bool
) -> dict[str, list[FacetValue]]:
    """The values of each facet with their counts, in the order of values; a facet without a choice is left out.

    `chosen`: values by facet. `judge`: whose outcomes count, unless one is chosen. `begun`: requested episodes are left out
    while no state is chosen.

    >>> online = ("ended", "online", "store", "buy")
    >>> counts = {EpisodeKind(None, None, *online): 3, EpisodeKind("rules", "success", *online): 2}
    >>> facets(counts, {"outcome": "success"}, judge="rules", begun=True)["outcome"]
    [FacetValue(value='success', count=2, chosen=True)]
    """
    values_by_facet: dict[str, list[FacetValue]] = {}
    for name, value_of in FACETS.items():
        other_choices = {facet: value for facet, value in chosen.items() if facet != name}
        values: dict[str, int] = defaultdict(int)
        for kind, number in counts.items():
            value = value_of(kind)
            if value is not None and _is_counted(kind, name, other_choices, judge=judge, begun=begun):
                values[value] += number
        if name in chosen:
            values.setdefault(chosen[name], 0)
        if len(values) > 1 or name in chosen or (name == "outcome" and values):
            values_by_facet[name] = [
                FacetValue(value=value, count=values[value], chosen=chosen.get(name) == value)
                for value in sorted(values)
            ]
    return values_by_facet


def _is_counted(
    kind: EpisodeKind, name: str, other_choices: Mapping[str, str], *, judge: str, begun: bool
) -> bool:
    """Whether a kind counts for a facet: it matches the filters of all others, and has verdicts of the right judge."""
    if begun and name != "state" and "state" not in other_choices and kind.state == "requested":
        return False
    if name == "judge":
        wanted_judge = kind.judge
    elif name == "outcome" or "outcome" in other_choices:
        wanted_judge = other_choices.get("judge", judge)
    else:
        wanted_judge = other_choices.get("judge")
    return kind.judge == wanted_judge and all(
        _has(kind, facet, value) for facet, value in other_choices.items() if facet != "judge"
    )


def _has(kind: EpisodeKind, name: str, value: str) -> bool:
    """Whether a kind has the value of a filter; a family may be named without its environment."""
    if name == "family" and "/" not in value:
        return kind.family == value
    return FACETS[name](kind) == value
