"""What became of the curriculum's phases; see `queries` on how questions are asked."""

import json
from collections import Counter, defaultdict
from statistics import median
from typing import Any

from sqlalchemy import Connection, RowMapping, func, select

from storage.readmodel.answers import PhaseRow
from storage.readmodel.asking import first_verdicts, holding, position_of, success_of
from storage.readmodel.queries import training_judge
from storage.readmodel.tables import episodes, notices, tasks

ONLINE = "online"


def list_phases(connection: Connection, *, as_of: int | None = None) -> list[PhaseRow]:
    """The phases that began, in order."""
    position = position_of(connection, as_of)
    candidates = defaultdict(list)
    for row in connection.execute(select(tasks).where(holding(tasks, position))).mappings():
        candidates[row["phase"]].append(row)
    admitted, played, revisited = _outcomes(connection, position)
    began = (
        select(notices.c.position, notices.c.detail)
        .where(holding(notices, position), notices.c.type == "phase.started")
        .order_by(notices.c.position)
    )
    found = []
    for row in connection.execute(began).mappings():
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
    connection: Connection, position: int
) -> tuple[dict[int, Counter[str]], Counter[int], dict[int, Counter[str]]]:
    """Outcomes by the phase of the task, episodes by their own phase, outcomes of revisits by their own phase."""
    said = first_verdicts(position, training_judge(connection, as_of=position))
    statement = (
        select(
            tasks.c.phase.label("made_for"),
            episodes.c.phase,
            episodes.c.revisits,
            said.c.outcome,
            func.count().label("episodes"),
        )
        .join(tasks, tasks.c.task == episodes.c.task)
        .outerjoin(said, said.c.episode == episodes.c.episode)
        .where(holding(episodes, position), holding(tasks, position), episodes.c.origin == ONLINE)
        .group_by(tasks.c.phase, episodes.c.phase, episodes.c.revisits, said.c.outcome)
    )
    admitted: dict[int, Counter[str]] = defaultdict(Counter)
    revisited: dict[int, Counter[str]] = defaultdict(Counter)
    played: Counter[int] = Counter()
    for row in connection.execute(statement).mappings():
        outcome, count = row["outcome"] or "", row["episodes"]
        played[row["phase"]] += count
        admitted[row["made_for"]][outcome] += count
        if row["revisits"]:
            revisited[row["phase"]][outcome] += count
    return admitted, played, revisited
