"""Queries about a whole run: its summary, the versions of its policy, changes of its recipe.

Every query of the read model takes `as_of`, a position in the log: the answer is that of the time of this position. All are
read-only. The judge is the run's first one, which training uses, unless named. If a judge gave several verdicts on an
episode, the first counts, since training used it.
"""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, Double, cast, func, select

from hindcast.storage.readmodel.block_sums import totals
from hindcast.storage.readmodel.episode_counts import count_states
from hindcast.storage.readmodel.evaluation_queries import EvaluationRow, list_evaluations
from hindcast.storage.readmodel.metrics import Throughput, throughput
from hindcast.storage.readmodel.outcome_counts import (
    FamilyRetention,
    Tally,
    VersionSuccess,
    curve,
    outcomes_of,
    retention,
    tallies_of,
    training_tallies,
)
from hindcast.storage.readmodel.query_parts import (
    NotInReadModel,
    Success,
    count_by,
    count_disputed,
    count_rows,
    count_trained,
    holding,
    of_this_run,
    pauses_in_force,
    position_of,
    row_fields,
    sampling_from,
    success_of,
    training_judge,
)
from hindcast.storage.readmodel.tables import (
    batches,
    checkpoints,
    consultations,
    notices,
    runs,
    tasks,
    updates,
    weights,
)


class PolicyRow(msgspec.Struct, frozen=True, kw_only=True):
    """One policy version in a list."""

    version: int
    at_update: int | None
    sha256: str | None
    size_bytes: int | None
    published_position: int
    adopted_by: tuple[str, ...]
    """Actors that sample from it now."""
    released: bool
    """Whether its weights were released."""
    success: Success
    """Of online episodes."""


class RecipeChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of settings, in force from its position on."""

    position: int
    text: str
    """Author, change and reason."""


class ModelSummary(msgspec.Struct, frozen=True, kw_only=True):
    """An auxiliary model, such as the critic."""

    model: str
    updates: int
    skipped_updates: int
    version: int
    """Newest published version; 0: none."""


class Consultations(msgspec.Struct, frozen=True, kw_only=True):
    """Questions to one model behind an endpoint for one purpose, summed."""

    purpose: str
    """`verdict`, `relabel`, `task` (to invent some), `feasibility` (of an invented one)."""
    model: str
    questions: int
    remembered: int
    """Questions answered from memory, without cost."""
    requests: int
    """Requests sent, including retries."""
    prompt_tokens: int
    answer_tokens: int
    cost_usd: float


class RunStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is and has reached, as of a position."""

    run: str
    position: int
    """Position as of which everything here holds."""
    state: str | None
    recipe: str | None
    run_seed: int | None
    base_policy_name: str | None
    parent: str | None
    """Run it was forked from."""
    forked_at: int | None
    """Position up to which its log is its parent's."""
    goal: dict[str, Any]
    finished_reason: str | None
    pauses: dict[str, str]
    """Author -> reason of each pause in force."""
    phase: int | None
    started_ns: int | None
    tasks: int
    episodes: dict[str, int]
    """Number of episodes by state."""
    verdicts: dict[str, int]
    """Outcomes by the training judge."""
    disputed: int
    """Number of episodes with a disputed verdict."""
    trained_episodes: int
    """Distinct episodes trained on, in any number of epochs or batches, without rehearsals."""
    steps: int
    batches: int
    updates: int
    skipped_updates: int
    beside: tuple[ModelSummary, ...]
    """The auxiliary models by name; `updates` and `policy_version` are the policy's."""
    consulted: tuple[Consultations, ...]
    """Models behind endpoints, by purpose and name."""
    policy_version: int | None
    """Newest published version."""
    sampling_from: dict[str, int]
    """Actor -> version it adopted last."""
    checkpoint_update: int | None
    notices: dict[str, int]
    """Number of notices by type."""
    evaluations: tuple[EvaluationRow, ...]
    """Success on held-out tasks, in order."""
    retention: tuple[FamilyRetention, ...]
    """Of families with enough episodes to compare."""
    changes: tuple[RecipeChange, ...]
    """Changes of the recipe during the run, in order."""
    throughput: Throughput


class RunSummary(RunStatus, frozen=True, kw_only=True):
    """A run's status with its success by policy version."""

    success: tuple[VersionSuccess, ...]


def run_summary(connection: Connection, *, as_of: int | None = None) -> RunSummary:
    """Status of the whole run, and a point for each policy version and origin.

    Raises:
        NotInReadModel: nothing is recorded at that position.
    """
    tallied = training_tallies(connection, as_of=as_of)
    status = run_status(connection, as_of=as_of, tallied=tallied)
    return RunSummary(**msgspec.structs.asdict(status), success=tuple(curve(tallied)))


def run_status(
    connection: Connection, *, as_of: int | None = None, tallied: Sequence[Tally] | None = None
) -> RunStatus:
    """Status of the whole run. `tallied`: its `training_tallies`, if they are known.

    Raises:
        NotInReadModel: nothing is recorded at that position.
    """
    position = position_of(connection, as_of)
    row = connection.execute(of_this_run(select(runs), position)).mappings().one_or_none()
    if row is None:
        raise NotInReadModel(f"the read model knows nothing of the run as of position {position} yet")
    if tallied is None:
        tallied = training_tallies(connection, as_of=position)
    counts = totals(connection, position)
    applied = count_by(connection, updates.c.outcome, updates, position, updates.c.model == "policy")
    published = select(func.max(weights.c.version)).where(
        holding(weights, position), weights.c.model == "policy"
    )
    saved = select(func.max(checkpoints.c.update_number)).where(holding(checkpoints, position))
    return RunStatus(
        **row_fields(row, RunStatus, without=("goal", "phase")),
        phase=connection.scalar(select(func.max(runs.c.phase)).where(holding(runs, position))),
        pauses=pauses_in_force(connection, position),
        position=position,
        goal=json.loads(row["goal"]) if row["goal"] else {},
        tasks=count_rows(connection, tasks, position),
        episodes=count_states(connection, as_of=position),
        verdicts=outcomes_of(tallied),
        disputed=count_disputed(connection, position),
        trained_episodes=count_trained(connection, position),
        steps=counts.get(("steps", ""), 0),
        batches=count_rows(connection, batches, position),
        updates=applied.get("applied", 0),
        skipped_updates=applied.get("skipped", 0),
        beside=_models_beside(connection, position),
        consulted=_consulted_models(connection, position),
        policy_version=connection.scalar(published),
        sampling_from=sampling_from(connection, position),
        checkpoint_update=connection.scalar(saved),
        notices={kind: number for (table, kind), number in counts.items() if table == "notices"},
        evaluations=tuple(list_evaluations(connection, as_of=position)),
        retention=retention(tallied),
        changes=recipe_changes(connection, as_of=position),
        throughput=throughput(connection, as_of=position),
    )


def recipe_changes(connection: Connection, *, as_of: int | None = None) -> tuple[RecipeChange, ...]:
    """Changes of the recipe, in order."""
    position = position_of(connection, as_of)
    statement = select(notices.c.position, notices.c.text).where(
        holding(notices, position), notices.c.type == "recipe.changed"
    )
    rows = connection.execute(statement.order_by(notices.c.position)).mappings()
    return tuple(RecipeChange(position=row["position"], text=row["text"]) for row in rows)


POLICY = "policy"


def _models_beside(connection: Connection, position: int) -> tuple[ModelSummary, ...]:
    """Summary of every auxiliary model with an update or published weights up to a position, by name."""
    counted = (
        select(updates.c.model, updates.c.outcome, func.count().label("number"))
        .where(holding(updates, position), updates.c.model != POLICY)
        .group_by(updates.c.model, updates.c.outcome)
    )
    newest = (
        select(weights.c.model, func.max(weights.c.version).label("version"))
        .where(holding(weights, position), weights.c.model != POLICY)
        .group_by(weights.c.model)
    )
    numbers = {
        (row["model"], row["outcome"]): int(row["number"]) for row in connection.execute(counted).mappings()
    }
    versions = {row["model"]: int(row["version"]) for row in connection.execute(newest).mappings()}
    return tuple(
        ModelSummary(
            model=name,
            updates=numbers.get((name, "applied"), 0),
            skipped_updates=numbers.get((name, "skipped"), 0),
            version=versions.get(name, 0),
        )
        for name in sorted({*versions, *(model for model, _ in numbers)})
    )


def _consulted_models(connection: Connection, position: int) -> tuple[Consultations, ...]:
    """Every model that was asked up to a position, by purpose and name."""
    consultation = consultations.c
    added = (
        select(
            consultation.purpose,
            consultation.model,
            func.count().label("questions"),
            func.count().filter(consultation.requests == 0).label("remembered"),
            *(
                # as floating point: servers may report any count, and SQLite refuses a sum beyond 64 bits
                func.coalesce(func.sum(cast(column, Double)), 0.0).label(column.name)
                for column in (
                    consultation.requests,
                    consultation.prompt_tokens,
                    consultation.answer_tokens,
                    consultation.cost_usd,
                )
            ),
        )
        .where(holding(consultations, position))
        .group_by(consultation.purpose, consultation.model)
        .order_by(consultation.purpose, consultation.model)
    )
    return tuple(
        Consultations(
            purpose=row["purpose"],
            model=row["model"],
            questions=row["questions"],
            remembered=row["remembered"],
            requests=int(row["requests"]),
            prompt_tokens=int(row["prompt_tokens"]),
            answer_tokens=int(row["answer_tokens"]),
            cost_usd=row["cost_usd"],
        )
        for row in connection.execute(added).mappings()
    )


def list_policies(
    connection: Connection,
    *,
    as_of: int | None = None,
    model: str = "policy",
    before: int | None = None,
    limit: int | None = None,
) -> list[PolicyRow]:
    """Policy versions, newest first. `before`: only those below this version, for the next page; `limit` None: all."""
    position = position_of(connection, as_of)
    statement = (
        select(weights, weights.c.valid_from.label("published_position"))
        .where(holding(weights, position), weights.c.model == model)
        .order_by(weights.c.version.desc())
        .limit(limit)
    )
    if before is not None:
        statement = statement.where(weights.c.version < before)
    rows = connection.execute(statement).mappings().all()
    if not rows:
        return []
    judge = training_judge(connection, as_of=position)
    last, first = rows[0]["version"], rows[-1]["version"]
    version_tallies = tallies_of(connection, position, judge, origin="online", first=first, last=last)
    success = {point.version: point.success for point in curve(version_tallies)}
    sampling = sampling_from(connection, position)
    releases = select(notices.c.about).where(holding(notices, position), notices.c.type == "blob.released")
    if limit is not None:  # few enough to be named
        releases = releases.where(notices.c.about.in_({row["sha256"] for row in rows}))
    released = set(connection.scalars(releases))
    return [
        PolicyRow(
            **row_fields(row, PolicyRow),
            adopted_by=tuple(actor for actor, version in sampling.items() if version == row["version"]),
            released=row["sha256"] in released,
            success=success.get(row["version"]) or success_of({}),
        )
        for row in rows
    ]
