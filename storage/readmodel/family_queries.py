"""Queries about one task family: what the updates trained on, and how its episodes failed."""

import msgspec
from sqlalchemy import Connection, and_, func, select

from hindcast.storage.readmodel.query_parts import also_holding, holding, position_of, training_judge
from hindcast.storage.readmodel.tables import batch_episodes, batches, episodes, judged, verdicts


class FamilyTraining(msgspec.Struct, frozen=True, kw_only=True):
    """What the batches between two policy versions trained on, without rehearsals; each episode counts once a batch."""

    batches: int
    """Batches that trained on any episode."""
    episodes: int
    """Episodes of the family."""
    mean_reward: float | None
    """Of the family's episodes; None: there is none."""
    raised: int
    """Episodes of the family with a positive advantage: their answers were made likelier."""
    lowered: int
    """Those with a negative one."""
    others: int
    """Episodes of other families."""


def family_training(
    connection: Connection,
    environment: str,
    family: str,
    *,
    first_version: int,
    last_version: int,
    as_of: int | None = None,
) -> FamilyTraining:
    """Sum of the batches that led from one policy version to another."""
    position = position_of(connection, as_of)
    between = select(batches.c.batch).where(
        holding(batches, position),
        batches.c.model == "policy",
        batches.c.version >= first_version,
        batches.c.version < last_version,
    )
    own = and_(episodes.c.environment == environment, episodes.c.family == family)
    statement = (
        select(
            func.count(batch_episodes.c.batch.distinct()).label("batches"),
            func.count().filter(own).label("episodes"),
            func.avg(batch_episodes.c.reward).filter(own).label("mean_reward"),
            func.count().filter(own, batch_episodes.c.advantage > 0).label("raised"),
            func.count().filter(own, batch_episodes.c.advantage < 0).label("lowered"),
            func.count().filter(~own).label("others"),
        )
        .select_from(batch_episodes)
        .join(
            episodes, and_(episodes.c.episode == batch_episodes.c.episode, also_holding(episodes, position))
        )
        .where(
            batch_episodes.c.batch.in_(between),
            # `+ 0`: search by the batch, not by an index that has the position
            batch_episodes.c.position + 0 <= position,
            batch_episodes.c.trained,
            batch_episodes.c.epoch == 0,
        )
    )
    return FamilyTraining(**connection.execute(statement).mappings().one())


def failure_reasons(
    connection: Connection,
    environment: str,
    family: str,
    *,
    origin: str,
    first_version: int,
    last_version: int,
    as_of: int | None = None,
    limit: int | None = None,
) -> dict[str, int]:
    """Failed episodes that these policy versions began, by the reason of the training judge, the most frequent first."""
    position = position_of(connection, as_of)
    first = and_(
        verdicts.c.episode == judged.c.episode,
        verdicts.c.judge == judged.c.judge,
        verdicts.c.position == judged.c.valid_from,
    )
    statement = (
        select(func.coalesce(verdicts.c.reason, ""), func.count())
        .select_from(judged.join(verdicts, first))
        .where(
            judged.c.judge == training_judge(connection, as_of=position),
            judged.c.origin == origin,
            judged.c.version_low.between(first_version, last_version),
            judged.c.environment == environment,
            judged.c.family == family,
            judged.c.outcome == "failure",
            judged.c.valid_from <= position,
        )
        .group_by(verdicts.c.reason)
        .order_by(func.count().desc(), verdicts.c.reason)
        .limit(limit)
    )
    return {str(row[0]): int(row[1]) for row in connection.execute(statement)}


def count_played_tasks(
    connection: Connection,
    environment: str,
    family: str,
    *,
    origin: str,
    first_version: int,
    last_version: int,
    as_of: int | None = None,
) -> int:
    """Number of different tasks of the judged episodes that these policy versions began."""
    position = position_of(connection, as_of)
    statement = select(func.count(judged.c.task.distinct())).where(
        judged.c.judge == training_judge(connection, as_of=position),
        judged.c.origin == origin,
        judged.c.version_low.between(first_version, last_version),
        judged.c.environment == environment,
        judged.c.family == family,
        judged.c.outcome.in_(("success", "failure")),
        judged.c.valid_from <= position,
    )
    return connection.scalar(statement) or 0
