"""Queries of tasks and of the curriculum's phases, and the refusal of names that do not exist; see `run_queries`."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

import msgspec
from msgspec.structs import replace
from sqlalchemy import ColumnElement, Connection, RowMapping, and_, case, func, select

from hindcast.core.text.nearest import advice
from hindcast.events.catalogue.curriculum import ONLINE
from hindcast.storage.readmodel.episode_queries import (
    EpisodeFilter,
)
from hindcast.storage.readmodel.query_parts import (
    OUTCOMES,
    NotInReadModel,
    Success,
    also_holding,
    by_holding,
    holding,
    in_order,
    position_of,
    row_fields,
    success_of,
    training_judge,
)
from hindcast.storage.readmodel.tables import (
    episodes,
    judged,
    notices,
    tasks,
    verdicts,
    weights,
)


class TaskRow(msgspec.Struct, frozen=True, kw_only=True):
    """One task in a list, with its success."""

    task: str
    environment: str | None
    family: str | None
    seed: int | None
    instruction: str | None
    """The page of an environment gives it: that of an episode, None before the first has started."""
    state: str | None
    reason: str | None
    """Why it was rejected."""
    phase: int | None
    value: float | None
    change: str | None
    """How it differs from the tasks it was made from."""
    checked: str | None
    """A model's answer whether it can be done; None: none was asked."""
    episodes: int
    success: Success


class PhaseRow(msgspec.Struct, frozen=True, kw_only=True):
    """One phase of the curriculum: its proposed tasks, their admission, and their success."""

    phase: int
    reference_version: int
    """Policy version that it began with."""
    position: int
    proposed: int
    admitted: int
    rejected: dict[str, int]
    """Number of rejected tasks by reason, up to its first colon."""
    changes: dict[str, int]
    """Number of candidates by kind of change."""
    valued: int
    """Candidates with a critic's value."""
    value_low: float | None
    value_median: float | None
    value_high: float | None
    """Lowest, middle and highest value of the candidates."""
    episodes: int
    """Online episodes requested in it."""
    success: Success
    """Of all online episodes, in any phase, of tasks that were admitted for this one."""
    revisits: Success
    """Of its own episodes on tasks of earlier phases."""


def list_tasks(
    connection: Connection,
    *,
    as_of: int | None = None,
    environment: str | None = None,
    family: str | None = None,
    state: str | None = None,
    phase: int | None = None,
    limit: int = 50,
) -> list[TaskRow]:
    """Tasks with their episodes and success, the most attempted first."""
    position = position_of(connection, as_of)
    judge = training_judge(connection, as_of=position)
    task = by_holding(episodes.c.task)
    counts = (
        select(task.label("task"), func.count().label("episodes"))
        .where(holding(episodes, position))
        .group_by(task)
        .subquery()
    )
    outcome_sums = (
        select(
            judged.c.task,
            *(
                func.sum(case((judged.c.outcome == outcome, 1), else_=0)).label(outcome)
                for outcome in OUTCOMES
            ),
        )
        .where(judged.c.judge == judge, judged.c.valid_from <= position)
        .group_by(judged.c.task)
        .subquery()
    )
    filters = {
        tasks.c.environment: environment,
        tasks.c.family: family,
        tasks.c.state: state,
        tasks.c.phase: phase,
    }
    attempted = func.coalesce(counts.c.episodes, 0)
    statement = (
        select(tasks, attempted.label("episodes"), *(outcome_sums.c[outcome] for outcome in OUTCOMES))
        .outerjoin(counts, counts.c.task == tasks.c.task)
        .outerjoin(outcome_sums, outcome_sums.c.task == tasks.c.task)
        .where(holding(tasks, position), *(c == value for c, value in filters.items() if value is not None))
        .order_by(
            attempted.desc().nulls_last(),
            *in_order(tasks.c.environment, tasks.c.family, tasks.c.seed, tasks.c.task),
        )
        .limit(limit)
    )
    rows = [
        TaskRow(
            **row_fields(row, TaskRow, without=("success",)),
            success=success_of({outcome: row[outcome] or 0 for outcome in OUTCOMES}),
        )
        for row in connection.execute(statement).mappings()
    ]
    instructions = _instructions(connection, [row.task for row in rows if row.instruction is None], position)
    return [replace(row, instruction=row.instruction or instructions.get(row.task)) for row in rows]


def _instructions(connection: Connection, task_ids: Sequence[str], position: int) -> dict[str, str]:
    """Instructions that pages gave in episodes of tasks."""
    statement = (
        select(episodes.c.task, func.max(episodes.c.instruction))
        .where(
            holding(episodes, position), episodes.c.task.in_(task_ids), episodes.c.instruction.is_not(None)
        )
        .group_by(episodes.c.task)
    )
    return {str(row[0]): str(row[1]) for row in connection.execute(statement)}


TOLD = ("task", "phase", "state", "reason", "value", "change")
"""Columns of a task that a phase is summarized from."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """A judged episode of a task."""

    episode: str
    outcome: str
    """`success` or `failure`, by the training judge."""
    family: str
    """`environment/family`."""


def newest_attempts(
    connection: Connection, *, after: int = 0, limit: int, as_of: int | None = None
) -> dict[str, Attempt]:
    """The newest judged episode of each task, among the newest `limit` verdicts after a position."""
    position = position_of(connection, as_of)
    judge = training_judge(connection, as_of=position)
    newest = (
        select(verdicts.c.position, verdicts.c.episode, verdicts.c.judge)
        .where(verdicts.c.position.between(after + 1, position), verdicts.c.judge == judge)
        .order_by(verdicts.c.position.desc())
        .limit(limit)
        .subquery()
    )
    first = and_(
        judged.c.episode == newest.c.episode,
        judged.c.judge
        == newest.c.judge,  # a constant would lead SQLite to the index of all episodes of the judge
        judged.c.valid_from == newest.c.position,
    )
    statement = (
        select(judged.c.task, judged.c.episode, judged.c.outcome, judged.c.environment, judged.c.family)
        .select_from(newest.join(judged, first))
        .where(judged.c.outcome.in_(("success", "failure")), judged.c.task.is_not(None))
        .order_by(newest.c.position.desc(), judged.c.episode)
    )
    attempts: dict[str, Attempt] = {}
    for task, episode, outcome, environment, family in connection.execute(statement):
        attempts.setdefault(task, Attempt(episode=episode, outcome=outcome, family=f"{environment}/{family}"))
    return attempts


def list_phases(connection: Connection, *, as_of: int | None = None) -> list[PhaseRow]:
    """The phases that began, in order."""
    position = position_of(connection, as_of)
    statement = (
        select(notices.c.position, notices.c.detail)
        .where(holding(notices, position), notices.c.type == "phase.started")
        .order_by(notices.c.position)
    )
    began = connection.execute(statement).mappings().all()
    if not began:
        return []
    candidates = defaultdict(list)
    made_for: dict[str, int | None] = {}
    task_rows = select(*(tasks.c[name] for name in TOLD)).where(holding(tasks, position))
    for row in connection.execute(task_rows).mappings():
        candidates[row["phase"]].append(row)
        made_for[row["task"]] = row["phase"]
    admitted, played, revisited = _phase_outcomes(connection, position, made_for)
    phase_rows = []
    for row in began:
        fact = json.loads(row["detail"])
        phase = fact["phase"]
        phase_rows.append(
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
    return phase_rows


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


def _phase_outcomes(
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
    outcome_rows = (
        select(*kind, func.count())
        .where(judged.c.judge == judge, judged.c.valid_from <= position, judged.c.origin == ONLINE)
        .group_by(*kind)
    )
    played: Counter[int | None] = Counter(dict(connection.execute(requested).all()))
    admitted: dict[int | None, Counter[str]] = defaultdict(Counter)
    revisited: dict[int | None, Counter[str]] = defaultdict(Counter)
    for task, phase, revisits, outcome, count in connection.execute(outcome_rows):
        if task in made_for:
            admitted[made_for[task]][outcome] += count
            if revisits:
                revisited[phase][outcome] += count
    return admitted, played, revisited


NEAR = 3


def refuse_unknown(
    connection: Connection,
    wanted: EpisodeFilter,
    *,
    group: str | None = None,
    phase: int | None = None,
    as_of: int | None = None,
) -> None:
    """Check that each named thing exists as of that position, even if no episode matches all of them.

    A run without any task refuses no site or family: tasks may still arrive.

    Raises:
        NotInReadModel: names what does not exist, with near matches or the choices.
    """
    position = position_of(connection, as_of)
    as_of_text = f"as of position {position}"
    kinds = select(tasks.c.environment, tasks.c.family).where(
        holding(tasks, position), tasks.c.family.is_not(None)
    )
    site_families = connection.execute(kinds.distinct()).all() if wanted.environment or wanted.family else []
    if site_families and wanted.environment:
        _refuse("site", wanted.environment, {site for site, _ in site_families}, as_of_text)
    if site_families and wanted.family:
        of_site = {family for site, family in site_families if wanted.environment in (None, site)}
        _refuse("family", wanted.family, of_site, as_of_text)
    if wanted.task and not _any(connection, holding(tasks, position), tasks.c.task == wanted.task):
        begins_so = tasks.c.task.startswith(wanted.task, autoescape=True)
        similar = connection.scalars(
            select(tasks.c.task).where(holding(tasks, position), begins_so).order_by(tasks.c.task).limit(NEAR)
        ).all()
        advice = f"it may be {' or '.join(similar)}" if similar else "run: hindcast task list"
        raise NotInReadModel(f"there is no task {wanted.task!r} {as_of_text}; {advice}")
    if group and not _any(connection, also_holding(episodes, position), episodes.c.group_id == group):
        raise NotInReadModel(f"there is no group {group!r} {as_of_text}; run: hindcast episode list")
    if wanted.policy is not None and wanted.policy >= 0:  # below: a demonstrator
        _refuse_version(connection, wanted.policy, position, as_of_text)
    if phase is not None:
        _refuse_phase(connection, phase, position, as_of_text)


def _any(connection: Connection, *where: ColumnElement[bool]) -> bool:
    return connection.execute(select(1).where(*where).limit(1)).first() is not None


def _refuse(noun: str, name: str, known: Iterable[str], as_of_text: str) -> None:
    """Raise NotInReadModel unless the name is known."""
    names = sorted(known)
    if name in names:
        return
    raise NotInReadModel(f"no task of the run is of {noun} {name!r} {as_of_text}; {advice(name, names)}")


def _refuse_version(connection: Connection, version: int, position: int, as_of_text: str) -> None:
    of_policies = (holding(weights, position), weights.c.model == "policy")
    if _any(connection, *of_policies, weights.c.version == version):
        return
    newest = select(weights.c.version).where(*of_policies).order_by(weights.c.version.desc()).limit(1)
    last = connection.scalar(newest)
    if last is not None:
        raise NotInReadModel(
            f"there is no policy version {version} {as_of_text}; the newest is {last}. Run: hindcast policy list"
        )


def _refuse_phase(connection: Connection, phase: int, position: int, as_of_text: str) -> None:
    of_phase = (holding(tasks, position), tasks.c.phase == phase)
    began = select(notices.c.about).where(holding(notices, position), notices.c.type == "phase.started")
    begun_phases = set(connection.scalars(began))
    # a phase that has only begun has no task of its own yet
    if begun_phases and str(phase) not in begun_phases and not _any(connection, *of_phase):
        raise NotInReadModel(
            f"there is no phase {phase} {as_of_text}; {len(begun_phases)} have begun. Run: hindcast curriculum show"
        )
