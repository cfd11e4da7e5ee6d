"""Queries about one task family: what the updates trained on, and how its episodes failed."""

from typing import NamedTuple

import msgspec
from sqlalchemy import ColumnElement, Connection, and_, func, select

from hindcast.storage.readmodel.query_parts import also_holding, holding, position_of, training_judge
from hindcast.storage.readmodel.tables import batch_episodes, batches, episodes, judged, verdicts


class FamilyEpisodes(NamedTuple):
    """The episodes of a family that some policy versions began."""

    environment: str
    family: str
    origin: str
    first_version: int
    last_version: int


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
    of_family = and_(episodes.c.environment == environment, episodes.c.family == family)
    statement = (
        select(
            func.count(batch_episodes.c.batch.distinct()).label("batches"),
            func.count().filter(of_family).label("episodes"),
            func.avg(batch_episodes.c.reward).filter(of_family).label("mean_reward"),
            func.count().filter(of_family, batch_episodes.c.advantage > 0).label("raised"),
            func.count().filter(of_family, batch_episodes.c.advantage < 0).label("lowered"),
            func.count().filter(~of_family).label("others"),
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
    wanted: FamilyEpisodes,
    *,
    as_of: int | None = None,
    limit: int | None = None,
) -> dict[str, int]:
    """Number of failed episodes by the reason of the training judge, the most frequent first."""
    position = position_of(connection, as_of)
    first = and_(
        verdicts.c.episode == judged.c.episode,
        verdicts.c.judge == judged.c.judge,
        verdicts.c.position == judged.c.valid_from,
    )
    reason = func.coalesce(verdicts.c.reason, "")
    statement = (
        select(reason, func.count())
        .select_from(judged.join(verdicts, first))
        .where(*_judged_conditions(connection, wanted, position), judged.c.outcome == "failure")
        .group_by(reason)
        .order_by(func.count().desc(), reason)
        .limit(limit)
    )
    return {str(row[0]): int(row[1]) for row in connection.execute(statement)}


def count_played_tasks(
    connection: Connection,
    wanted: FamilyEpisodes,
    *,
    as_of: int | None = None,
) -> int:
    """Number of different tasks of the episodes that were judged a success or a failure."""
    position = position_of(connection, as_of)
    statement = select(func.count(judged.c.task.distinct())).where(
        *_judged_conditions(connection, wanted, position), judged.c.outcome.in_(("success", "failure"))
    )
    return connection.scalar(statement) or 0


def _judged_conditions(
    connection: Connection, wanted: FamilyEpisodes, position: int
) -> tuple[ColumnElement[bool], ...]:
    """Verdicts of the training judge on these episodes."""
    return (
        judged.c.judge == training_judge(connection, as_of=position),
        judged.c.origin == wanted.origin,
        judged.c.version_low.between(wanted.first_version, wanted.last_version),
        judged.c.environment == wanted.environment,
        judged.c.family == wanted.family,
        judged.c.valid_from <= position,
    )
