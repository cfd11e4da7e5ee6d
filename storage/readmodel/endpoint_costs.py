"""Questions to models behind endpoints and their costs: per verdict of an episode, and summed over a run."""

from typing import Any

from sqlalchemy import Connection, Double, Select, cast, func, select

from hindcast.storage.readmodel.query_parts import holding
from hindcast.storage.readmodel.results import Consultations
from hindcast.storage.readmodel.tables import consultations, verdicts


def verdicts_with_cost(position: int, episode: str) -> Select[Any]:
    """An episode's verdicts in order, each with the cost of its question, as `VerdictRow` has it."""
    asked = consultations.c
    return (
        select(
            verdicts,
            asked.model.label("asked_model"),
            asked.prompt_tokens,
            asked.answer_tokens,
            asked.cost_usd,
        )
        .outerjoin_from(verdicts, consultations, asked.position == verdicts.c.position)
        .where(holding(verdicts, position), verdicts.c.episode == episode)
        .order_by(verdicts.c.position)
    )


def consulted_models(connection: Connection, position: int) -> tuple[Consultations, ...]:
    """Every model that was asked up to a position, by purpose and name."""
    asked = consultations.c
    added = (
        select(
            asked.purpose,
            asked.model,
            func.count().label("questions"),
            func.count().filter(asked.requests == 0).label("remembered"),
            *(
                # as floating point: servers may report any count, and SQLite refuses a sum beyond 64 bits
                func.coalesce(func.sum(cast(column, Double)), 0.0).label(column.name)
                for column in (asked.requests, asked.prompt_tokens, asked.answer_tokens, asked.cost_usd)
            ),
        )
        .where(holding(consultations, position))
        .group_by(asked.purpose, asked.model)
        .order_by(asked.purpose, asked.model)
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
