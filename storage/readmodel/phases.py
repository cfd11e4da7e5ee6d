"""Results of the curriculum's phases; see `queries` for the conventions of queries."""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from statistics import median
from typing import Any

from sqlalchemy import Connection, RowMapping, func, select

from hindcast.storage.readmodel.queries import training_judge
from hindcast.storage.readmodel.query_parts import holding, position_of, success_of
from hindcast.storage.readmodel.results import PhaseRow
from hindcast.storage.readmodel.tables import episodes, judged, notices, tasks

ONLINE = "online"
TOLD = ("task", "phase", "state", "reason", "value", "change")
"""Columns of a task that a phase is summarized from."""


def list_phases(connection: Connection, *, as_of: int | None = None) -> list[PhaseRow]:
    """The phases that began, in order."""
    position = position_of(connection, as_of)
    told = (
        select(notices.c.position, notices.c.detail)
        .where(holding(notices, position), notices.c.type == "phase.started")
        .order_by(notices.c.position)
    )
    began = connection.execute(told).mappings().all()
    if not began:
        return []
    candidates = defaultdict(list)
    made_for: dict[str, int | None] = {}
    listed = select(*(tasks.c[name] for name in TOLD)).where(holding(tasks, position))
    for row in connection.execute(listed).mappings():
        candidates[row["phase"]].append(row)
        made_for[row["task"]] = row["phase"]
    admitted, played, revisited = _outcomes(connection, position, made_for)
    found = []
    for row in began:
        fact = json.loads(row["detail"])
        phase = fact["phase"]
        found.append(
            PhaseRow(
                phase=phase,
                reference_version=fact["reference_version"],
                position=row["position"],
                **_of_candidates(candidates[phase]),
                episodes=played[phase],
                success=success_of(admitted[phase]),
                revisits=success_of(revisited[phase]),
            )
        )
    return found


def _of_candidates(rows: list[RowMapping]) -> dict[str, Any]:
    values = [row["value"] for row in rows if row["value"] is not None]
    return {
        "proposed": len(rows),
        "admitted": sum(row["state"] == "admitted" for row in rows),
        "rejected": dict(
            sorted(
                Counter(
                    (row["reason"] or "").partition(":")[0] for row in rows if row["state"] == "rejected"
                ).items()
            )
        ),
        "changes": dict(sorted(Counter(row["change"] for row in rows if row["change"]).items())),
        "valued": len(values),
        "value_low": min(values, default=None),
        "value_median": median(values) if values else None,
        "value_high": max(values, default=None),
    }


def _outcomes(
    connection: Connection, position: int, made_for: Mapping[str, int | None]
) -> tuple[dict[int | None, Counter[str]], Counter[int | None], dict[int | None, Counter[str]]]:
    """Outcomes by the phase of the task, episodes by their own phase, outcomes of revisits by their own phase."""
    requested = (
        select(episodes.c.phase, func.count())
        .where(holding(episodes, position), episodes.c.origin == ONLINE, episodes.c.task.is_not(None))
        .group_by(episodes.c.phase)
    )
    kind = (judged.c.task, judged.c.phase, judged.c.revisits, judged.c.outcome)
    judge = training_judge(connection, as_of=position)
    said = (
        select(*kind, func.count())
        .where(judged.c.judge == judge, judged.c.valid_from <= position, judged.c.origin == ONLINE)
        .group_by(*kind)
    )
    played: Counter[int | None] = Counter(dict(connection.execute(requested).all()))
    admitted: dict[int | None, Counter[str]] = defaultdict(Counter)
    revisited: dict[int | None, Counter[str]] = defaultdict(Counter)
    for task, phase, revisits, outcome, count in connection.execute(said):
        if task in made_for:
            admitted[made_for[task]][outcome] += count
            if revisits:
                revisited[phase][outcome] += count
    return admitted, played, revisited
