"""Queries of the read model. Each takes `as_of`, a position in the log: the answer is that of the time of this position.

All are read-only. The judge is the run's first one, which training uses, unless named. If a judge gave several verdicts on
an episode, the first counts, since training used it.
"""

import json
from collections import defaultdict

from sqlalchemy import Connection, RowMapping, and_, case, func, select

from hindcast.storage.readmodel.auxiliary_models import models_beside
from hindcast.storage.readmodel.block_sums import totals
from hindcast.storage.readmodel.endpoint_costs import consulted_models, verdicts_with_cost
from hindcast.storage.readmodel.forgetting import retention
from hindcast.storage.readmodel.outcome_counts import curve, outcomes_of, tallies, tallies_of
from hindcast.storage.readmodel.query_parts import (
    DISPUTED,
    OUTCOMES,
    NotInReadModel,
    answers,
    by_holding,
    count_by,
    count_disputed,
    count_rows,
    count_trained,
    episode_rows,
    first_verdicts,
    holding,
    in_order,
    of_this_run,
    only,
    pauses_in_force,
    position_of,
    sampling_from,
    success_of,
)
from hindcast.storage.readmodel.results import (
    DisputeRow,
    EpisodeDetail,
    EpisodeRow,
    PolicyRow,
    RecipeChange,
    RunSummary,
    StepRow,
    TaskRow,
    TrainedIn,
    VerdictRow,
    VersionSuccess,
)
from hindcast.storage.readmodel.screenshots import screenshots_of
from hindcast.storage.readmodel.tables import (
    batch_episodes,
    batch_samples,
    batches,
    checkpoints,
    episodes,
    judged,
    notices,
    runs,
    steps,
    tasks,
    update_samples,
    updates,
    weights,
)
from hindcast.storage.readmodel.throughput import throughput

DEFAULT_JUDGE = "rules"


def training_judge(connection: Connection, *, as_of: int | None = None) -> str:
    """The judge whose verdicts are trained on."""
    position = position_of(connection, as_of)
    settings = connection.scalar(of_this_run(select(runs.c.settings), position))
    judges = json.loads(settings).get("judge", {}).get("judges", []) if settings else []
    return str(judges[0]) if judges else DEFAULT_JUDGE


def success_by_version(
    connection: Connection,
    *,
    as_of: int | None = None,
    origin: str | None = "online",
    judge: str | None = None,
) -> list[VersionSuccess]:
    """The success curve: one point per policy version and origin. `origin` None: all of them, separately."""
    position = position_of(connection, as_of)
    told = tallies(connection, position, judge or training_judge(connection, as_of=position))
    return curve(one for one in told if origin in (None, one.origin))


def list_episodes(
    connection: Connection,
    *,
    as_of: int | None = None,
    state: str | None = None,
    environment: str | None = None,
    family: str | None = None,
    origin: str | None = None,
    task: str | None = None,
    group: str | None = None,
    version: int | None = None,
    last_version: int | None = None,
    outcome: str | None = None,
    before: int | None = None,
    limit: int = 50,
) -> list[EpisodeRow]:
    """Episodes, the latest request first. `before`: only those requested before this position, for the next page.

    `last_version`: those of `version` and later ones, up to this one.
    """
    position = position_of(connection, as_of)
    said = first_verdicts(position, training_judge(connection, as_of=position))
    wanted = {
        episodes.c.state: state,
        episodes.c.environment: environment,
        episodes.c.family: family,
        episodes.c.origin: origin,
        episodes.c.task: task,
        episodes.c.group_id: group,
        # coalesce covers episodes without a verdict and keeps the database from searching by outcome: the order decides
        func.coalesce(said.c.outcome, ""): outcome,
    }
    statement = episode_rows(position, said).where(
        *(c == value for c, value in wanted.items() if value is not None)
    )
    if version is not None:
        last = version if last_version is None else last_version
        statement = statement.where(episodes.c.version_low.between(version, last))
    if before is not None:
        statement = statement.where(episodes.c.requested_position < before)
    ordered = statement.order_by(episodes.c.requested_position.desc().nulls_last(), episodes.c.episode).limit(
        limit
    )
    return answers(connection, ordered, EpisodeRow)


def show_episode(connection: Connection, episode: str, *, as_of: int | None = None) -> EpisodeDetail:
    """One episode with its steps, its verdicts, and the batches that used it.

    Raises:
        NotInReadModel: no such episode at that position.
    """
    position = position_of(connection, as_of)
    said = first_verdicts(position, training_judge(connection, as_of=position))
    found = answers(connection, episode_rows(position, said).where(episodes.c.episode == episode), EpisodeRow)
    if not found:
        raise NotInReadModel(
            f"there is no episode {episode!r} as of position {position}. Run: hindcast episode list"
        )
    more = select(
        *(episodes.c[name] for name in ("instruction", "renderer", "answer", "final_url", "detail"))
    )
    own = (
        connection.execute(more.where(holding(episodes, position), episodes.c.episode == episode))
        .mappings()
        .one()
    )
    taken = (
        select(steps).where(holding(steps, position), steps.c.episode == episode).order_by(steps.c.position)
    )
    seen = taken.with_only_columns(steps.c.position.label("seen_at"), steps.c.observation_blob).subquery()
    gone = select(func.count(seen.c.seen_at.distinct())).join(
        notices,
        and_(
            holding(notices, position),
            notices.c.type == "blob.released",
            notices.c.about == seen.c.observation_blob,
            notices.c.position > seen.c.seen_at,
        ),
    )
    return EpisodeDetail(
        episode=found[0],
        **own,
        steps=tuple(answers(connection, taken, StepRow)),
        pages_released=connection.scalars(gone).one(),
        screenshots=screenshots_of(connection, episode, position),
        verdicts=tuple(answers(connection, verdicts_with_cost(position, episode), VerdictRow)),
        disputes=_disputes(connection, episode, position),
        batches=_trained_in(connection, episode, position),
    )


def _disputes(connection: Connection, episode: str, position: int) -> tuple[DisputeRow, ...]:
    told = (
        select(notices.c.position, notices.c.detail)
        .where(holding(notices, position), notices.c.type == DISPUTED, notices.c.about == episode)
        .order_by(notices.c.position)
    )
    facts = [(at, json.loads(detail)) for at, detail in connection.execute(told)]
    return tuple(
        DisputeRow(
            position=at,
            judge=fact["judge"]["name"],
            judge_version=fact["judge"]["version"],
            outcome=fact["outcome"],
            author=fact["author"],
            reason=fact["reason"],
        )
        for at, fact in facts
    )


def _trained_in(connection: Connection, episode: str, position: int) -> tuple[TrainedIn, ...]:
    """Batches with samples of the episode, and the updates computed from them."""
    parts = select(batch_episodes).where(
        holding(batch_episodes, position), batch_episodes.c.episode == episode
    )
    made = (
        select(batch_samples.c.batch, update_samples.c.update_number)
        .join(
            update_samples,
            and_(
                update_samples.c.batch == batch_samples.c.batch,
                update_samples.c.minibatch == batch_samples.c.minibatch,
                update_samples.c.place == batch_samples.c.place,
            ),
        )
        .where(
            batch_samples.c.batch.in_(parts.with_only_columns(batch_episodes.c.batch)),
            batch_samples.c.episode == episode,
            holding(update_samples, position),
            update_samples.c.model == "policy",
        )
        .distinct()
    )
    numbers: dict[int, set[int]] = defaultdict(set)
    for batch, number in connection.execute(made):
        numbers[batch].add(number)
    times: dict[tuple[int, bool], list[RowMapping]] = defaultdict(list)
    ordered = parts.order_by(batch_episodes.c.position, batch_episodes.c.place)
    for row in connection.execute(ordered).mappings():
        times[row["position"], row["rehearsed"]].append(row)
    return tuple(
        TrainedIn(
            **only(rows[0], TrainedIn),
            epochs=sum(row["epoch"] is not None for row in rows),
            updates=tuple(sorted(numbers[rows[0]["batch"]])),
        )
        for rows in times.values()
    )


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
    said = (
        select(
            judged.c.task,
            *(func.sum(case((judged.c.outcome == one, 1), else_=0)).label(one) for one in OUTCOMES),
        )
        .where(judged.c.judge == judge, judged.c.valid_from <= position)
        .group_by(judged.c.task)
        .subquery()
    )
    wanted = {
        tasks.c.environment: environment,
        tasks.c.family: family,
        tasks.c.state: state,
        tasks.c.phase: phase,
    }
    attempted = func.coalesce(counts.c.episodes, 0)
    statement = (
        select(tasks, attempted.label("episodes"), *(said.c[one] for one in OUTCOMES))
        .outerjoin(counts, counts.c.task == tasks.c.task)
        .outerjoin(said, said.c.task == tasks.c.task)
        .where(holding(tasks, position), *(c == value for c, value in wanted.items() if value is not None))
        .order_by(
            attempted.desc().nulls_last(),
            *in_order(tasks.c.environment, tasks.c.family, tasks.c.seed, tasks.c.task),
        )
        .limit(limit)
    )
    return [
        TaskRow(
            **only(row, TaskRow, without=("success",)),
            success=success_of({one: row[one] or 0 for one in OUTCOMES}),
        )
        for row in connection.execute(statement).mappings()
    ]


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
    told = tallies_of(connection, position, judge, origin="online", first=first, last=last)
    success = {point.version: point.success for point in curve(told)}
    sampling = sampling_from(connection, position)
    gone = select(notices.c.about).where(holding(notices, position), notices.c.type == "blob.released")
    if limit is not None:  # few enough to be named
        gone = gone.where(notices.c.about.in_({row["sha256"] for row in rows}))
    released = set(connection.scalars(gone))
    return [
        PolicyRow(
            **only(row, PolicyRow),
            adopted_by=tuple(actor for actor, version in sampling.items() if version == row["version"]),
            released=row["sha256"] in released,
            success=success.get(row["version"]) or success_of({}),
        )
        for row in rows
    ]


def run_summary(connection: Connection, *, as_of: int | None = None) -> RunSummary:
    """Summary of the whole run.

    Raises:
        NotInReadModel: nothing is recorded at that position.
    """
    position = position_of(connection, as_of)
    row = connection.execute(of_this_run(select(runs), position)).mappings().one_or_none()
    if row is None:
        raise NotInReadModel(f"the read model knows nothing of the run as of position {position} yet")
    judge = training_judge(connection, as_of=position)
    told = tallies(connection, position, judge)
    counts = totals(connection, position)
    applied = count_by(connection, updates.c.outcome, updates, position, updates.c.model == "policy")
    published = select(func.max(weights.c.version)).where(
        holding(weights, position), weights.c.model == "policy"
    )
    saved = select(func.max(checkpoints.c.update_number)).where(holding(checkpoints, position))
    return RunSummary(
        **only(row, RunSummary, without=("goal", "phase")),
        phase=connection.scalar(select(func.max(runs.c.phase)).where(holding(runs, position))),
        pauses=pauses_in_force(connection, position),
        position=position,
        goal=json.loads(row["goal"]) if row["goal"] else {},
        tasks=count_rows(connection, tasks, position),
        episodes=count_by(connection, episodes.c.state, episodes, position),
        verdicts=outcomes_of(told),
        disputed=count_disputed(connection, position),
        trained_episodes=count_trained(connection, position),
        steps=counts.get(("steps", ""), 0),
        batches=count_rows(connection, batches, position),
        updates=applied.get("applied", 0),
        skipped_updates=applied.get("skipped", 0),
        beside=models_beside(connection, position),
        consulted=consulted_models(connection, position),
        policy_version=connection.scalar(published),
        sampling_from=sampling_from(connection, position),
        checkpoint_update=connection.scalar(saved),
        notices={kind: number for (table, kind), number in counts.items() if table == "notices"},
        success=tuple(curve(told)),
        retention=retention(told),
        changes=recipe_changes(connection, as_of=position),
        throughput=throughput(connection, as_of=position),
    )


def recipe_changes(connection: Connection, *, as_of: int | None = None) -> tuple[RecipeChange, ...]:
    """Changes of the recipe, in order."""
    position = position_of(connection, as_of)
    told = select(notices.c.position, notices.c.text).where(
        holding(notices, position), notices.c.type == "recipe.changed"
    )
    rows = connection.execute(told.order_by(notices.c.position)).mappings()
    return tuple(RecipeChange(position=row["position"], text=row["text"]) for row in rows)
