"""Folds events into the tables. Invariant 1, log is the truth; the position moves in the same transaction as its effect.

So a crash between two batches loses nothing and doubles nothing: either both the rows and the position are there, or
neither. Events that do not follow the position are refused, never skipped: two projectors on one database, or a caller
that passed a batch twice, show at once.
"""

from collections.abc import Sequence

import msgspec
from sqlalchemy import Connection, insert, select, update

from core.errors import HindcastError
from events.chain import RollingDigest
from events.envelope import Recorded
from storage.readmodel.mapping import operations
from storage.readmodel.operations import Ensure, Insert, Put, Values
from storage.readmodel.revisions import BLANK, Revisions
from storage.readmodel.tables import SCHEMA_VERSION, TABLES, cursor

CURSOR_NAME = "readmodel"


class PositionRefused(HindcastError):
    """An event does not follow the position that the read model stands at."""


class Cursor(msgspec.Struct, frozen=True, kw_only=True):
    """How far the read model is, and of which log."""

    run: str
    schema_version: int = SCHEMA_VERSION
    position: int = 0
    log_digest: str = bytes(32).hex()
    """Rolling digest over every event folded so far."""
    first_digest: str = ""
    """sha256 of the first event's stored bytes."""
    last_digest: str = ""
    """sha256 of the stored bytes of the event at `position`."""


def read_cursor(connection: Connection) -> Cursor | None:
    """Where the read model stands; None when nothing was ever prepared."""
    row = connection.execute(select(cursor).where(cursor.c.name == CURSOR_NAME)).mappings().one_or_none()
    return None if row is None else Cursor(**{name: row[name] for name in Cursor.__struct_fields__})


def apply(connection: Connection, recordeds: Sequence[Recorded], *, reached: int | None = None) -> Cursor:
    """Fold a batch of consecutive events within the caller's transaction; returns where the read model stands then.

    `reached`: how far the caller has read when it left out events of types unknown to this version; gaps between the
    events are accepted only then.

    Raises:
        PositionRefused: the first event does not follow the position, or the events do not follow each other.

    """
    connection.execute(
        update(cursor).values(position=cursor.c.position)
    )  # takes the write lock before anything is read
    standing = read_cursor(connection)
    if standing is None:
        raise PositionRefused("the read model has no cursor: prepare it before anything is folded into it")
    moved = _advance(standing, recordeds, reached)
    connection.execute(
        update(cursor).where(cursor.c.name == CURSOR_NAME).values(**msgspec.structs.asdict(moved))
    )
    changes = _Changes()
    for recorded in recordeds:
        changes.add(recorded)
    changes.write(connection)
    return moved


def _advance(standing: Cursor, recordeds: Sequence[Recorded], reached: int | None) -> Cursor:
    """The cursor after the batch; refuses what does not follow."""
    position = standing.position
    digest = RollingDigest(bytes.fromhex(standing.log_digest))
    for recorded in recordeds:
        follows = recorded.position == position + 1 if reached is None else recorded.position > position
        if not follows:
            raise PositionRefused(
                f"the read model of run {standing.run} stands at position {position} and was given position "
                f"{recorded.position}: it takes each event once, in order. If two projectors write to this database, "
                "stop one; else run: hindcast rebuild"
            )
        position = recorded.position
        digest.advance(recorded.digest)
    if reached is not None and reached < position:
        raise PositionRefused(
            f"the batch goes to position {position}, beyond {reached}, which it claims to reach"
        )
    if not recordeds:
        return msgspec.structs.replace(
            standing, position=position if reached is None else max(reached, position)
        )
    return msgspec.structs.replace(
        standing,
        position=position if reached is None else reached,
        log_digest=digest.value.hex(),
        first_digest=standing.first_digest or recordeds[0].digest.hex(),
        last_digest=recordeds[-1].digest.hex(),
    )


class _Changes:
    """The rows that a batch of events adds and changes, gathered first and written in few statements."""

    def __init__(self) -> None:
        self._recorded: dict[str, list[Values]] = {}
        self._revised: dict[str, list[tuple[int, Put | Ensure]]] = {}

    def add(self, recorded: Recorded) -> None:
        """Take in what one event does."""
        for operation in operations(recorded):
            table = operation.table
            if isinstance(operation, Insert):
                row = {**BLANK[table], **operation.values, "position": recorded.position}
                self._recorded.setdefault(table, []).append(row)
            else:
                self._revised.setdefault(table, []).append((recorded.position, operation))

    def write(self, connection: Connection) -> None:
        """Close the rows that end and add the new ones."""
        for name, revised in self._revised.items():
            revisions = Revisions(TABLES[name])
            revisions.load(connection, {operation.key for _, operation in revised})
            for position, operation in revised:
                revisions.take(position, operation)
            revisions.write(connection)
        for name, rows in self._recorded.items():
            connection.execute(insert(TABLES[name]), rows)
