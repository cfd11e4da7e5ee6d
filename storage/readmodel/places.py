"""Resolves places in a log (`events.log.places`) from the read model: the same positions, without reading the log."""

from sqlalchemy import ColumnElement, Connection, Select, Table, func, select

from hindcast.core.errors import NoSuchPlace
from hindcast.events.log.places import Noun, Place, what_there_is
from hindcast.storage.readmodel.query_parts import holding, position_of
from hindcast.storage.readmodel.tables import batches, checkpoints, updates, weights

POLICY = "policy"


def position_of_place(connection: Connection, place: Place) -> int:
    """Position of a place, as far as the read model knows the log.

    Raises:
        NoSuchPlace: no such event exists, or not yet; names those that exist.
        NotInReadModel: a position beyond the read model.
    """
    if place.noun == "position":
        return position_of(connection, place.number)
    standing = position_of(connection, None)
    positions = _landmarks(standing, place.noun).subquery()
    number = positions.c.number
    if place.number is None:
        known = select(positions.c.position).order_by(number.desc(), positions.c.position.desc())
    else:
        known = (
            select(positions.c.position).where(number == place.number).order_by(positions.c.position.desc())
        )
    found: int | None = connection.scalar(known.limit(1))
    if found is None:
        lowest, highest = connection.execute(select(func.min(number), func.max(number))).one()
        raise NoSuchPlace(
            f"there is no {place} as of position {standing}: {what_there_is(lowest, highest)}. Positions can be given, too."
        )
    return found


def _landmarks(standing: int, noun: Noun) -> Select[int, int]:
    """Number and position of everything of a kind."""

    def of(table: Table, number: ColumnElement[int], position: ColumnElement[int]) -> Select[int, int]:
        return select(number.label("number"), position.label("position")).where(holding(table, standing))

    match noun:
        case "update":
            applied = (updates.c.model == POLICY, updates.c.outcome == "applied")
            return of(updates, updates.c.update_number, updates.c.position).where(*applied)
        case "policy":
            return of(weights, weights.c.version, weights.c.valid_from).where(weights.c.model == POLICY)
        case "checkpoint":
            return of(checkpoints, checkpoints.c.update_number, checkpoints.c.position)
        case _:
            closing = (
                select(func.min(weights.c.valid_from))
                .where(
                    holding(weights, standing),
                    weights.c.model == POLICY,
                    weights.c.valid_from > batches.c.position,
                )
                .scalar_subquery()
            )
            return of(batches, batches.c.batch, closing).where(closing.is_not(None))
