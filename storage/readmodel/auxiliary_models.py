"""State of the auxiliary models, such as the critic or the outcome reward model."""

from sqlalchemy import Connection, func, select

from hindcast.storage.readmodel.query_parts import holding
from hindcast.storage.readmodel.results import ModelSummary
from hindcast.storage.readmodel.tables import updates, weights

POLICY = "policy"


def models_beside(connection: Connection, position: int) -> tuple[ModelSummary, ...]:
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
