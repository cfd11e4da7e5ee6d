"""Folds events into the tables. Invariant 1, log is the truth; the position moves in the same transaction as its effect.

So a crash between two batches loses nothing and repeats nothing: rows and position are committed together. Events that do
not follow the position are refused, never skipped: two projectors on one database, or a batch passed twice, are detected
at once.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec
from sqlalchemy import Connection, select, update

from hindcast.core.errors import HindcastError
from hindcast.events.envelope import Recorded
from hindcast.events.log.hash_chain import RollingDigest
from hindcast.storage.readmodel.block_sums import add_up
from hindcast.storage.readmodel.mapping import operations
from hindcast.storage.readmodel.row_operations import Ensure, Insert, InsertMany, Put, Values
from hindcast.storage.readmodel.rows import Key, Revisions, RowBatch, insert_many, insert_rows
from hindcast.storage.readmodel.tables import SCHEMA_VERSION, TABLES, cursor

CURSOR_NAME = "readmodel"


class PositionRefused(HindcastError):
    """An event does not follow the read model's position."""


class Cursor(msgspec.Struct, frozen=True, kw_only=True):
    """Position of the read model, and the log it was folded from."""

    run: str
    schema_version: int = SCHEMA_VERSION
    position: int = 0
    """Position up to which the log is folded."""
    log_digest: str = bytes(32).hex()
    """Rolling digest over every event folded so far."""
    first_digest: str = ""
    """sha256 of the stored bytes of the log's first event."""
    last_position: int = 0
    """Position of the last event folded; less than `position` if events of unknown types followed."""
    last_digest: str = ""
    """sha256 of the stored bytes of the event at `last_position`."""


def read_cursor(connection: Connection) -> Cursor | None:
    """The read model's cursor; None if it was never prepared."""
    row = connection.execute(select(cursor).where(cursor.c.name == CURSOR_NAME)).mappings().one_or_none()
    return None if row is None else Cursor(**{name: row[name] for name in Cursor.__struct_fields__})


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """The stretch (`after`, `reached`] that a reader has read, including skipped events of unknown types."""

    after: int
    reached: int


def apply(connection: Connection, recordeds: Sequence[Recorded], *, span: Span | None = None) -> Cursor:
    """Fold a batch of events within the caller's transaction; returns the new cursor.

    Without a `span` the events must follow the position and each other without a gap.

    Raises:
        PositionRefused: they do not follow.
    """
    # takes the write lock before anything is read
    connection.execute(update(cursor).values(position=cursor.c.position))
    standing = read_cursor(connection)
    if standing is None:
        raise PositionRefused("the read model has no cursor: prepare it before anything is folded into it")
    moved = _advance(standing, recordeds, span)
    connection.execute(
        update(cursor).where(cursor.c.name == CURSOR_NAME).values(**msgspec.structs.asdict(moved))
    )
    changes = _Changes()
    for recorded in recordeds:
        changes.add(recorded)
    changes.write(connection)
    add_up(connection, after=standing.position, reached=moved.position)
    return moved


def _advance(standing: Cursor, recordeds: Sequence[Recorded], span: Span | None) -> Cursor:
    """The cursor after the batch. Raises PositionRefused."""
    if span is not None and span.after != standing.position:
        raise _refused(standing, span.after + 1)
    position = standing.position
    digest = RollingDigest(bytes.fromhex(standing.log_digest))
    for recorded in recordeds:
        if recorded.position <= position or (span is None and recorded.position != position + 1):
            raise _refused(msgspec.structs.replace(standing, position=position), recorded.position)
        position = recorded.position
        digest.advance(recorded.digest)
    if span is not None:
        assert span.reached >= position, "a reader cannot have reached less than it gives"
        position = span.reached
    moved = msgspec.structs.replace(standing, position=position)
    if not recordeds:
        return moved
    return msgspec.structs.replace(
        moved,
        log_digest=digest.value.hex(),
        first_digest=recordeds[0].digest.hex() if recordeds[0].position == 1 else standing.first_digest,
        last_position=recordeds[-1].position,
        last_digest=recordeds[-1].digest.hex(),
    )


def _refused(standing: Cursor, position: int) -> PositionRefused:
    return PositionRefused(
        f"the read model of run {standing.run} is at position {standing.position} and was given position {position}: "
        "it takes each event once, in order. If two projectors write to this database, stop one; else start it again."
    )


class _Changes:
    """The rows that a batch of events adds and changes, gathered first and written in few statements."""

    def __init__(self) -> None:
        self._recorded: dict[str, list[Values]] = {}
        self._many: dict[str, list[RowBatch]] = {}
        self._revised: list[tuple[int, Put | Ensure]] = []
        self._keys: dict[str, set[Key]] = defaultdict(set)

    def add(self, recorded: Recorded) -> None:
        """Take in the operations of one event."""
        for operation in operations(recorded):
            table = operation.table
            if isinstance(operation, Insert):
                row = {**operation.values, "position": recorded.position}
                self._recorded.setdefault(table, []).append(row)
            elif isinstance(operation, InsertMany):
                many = RowBatch({**operation.shared, "position": recorded.position}, operation.columns)
                self._many.setdefault(table, []).append(many)
            else:
                self._revised.append((recorded.position, operation))
                self._keys[table].add(operation.key)
                if isinstance(operation, Ensure) and operation.taken is not None:
                    self._keys[operation.taken.table].add(operation.taken.key)

    def write(self, connection: Connection) -> None:
        """Close the rows that end and add the new ones."""
        revisions = {name: Revisions(TABLES[name]) for name in self._keys}
        for name, keys in self._keys.items():
            revisions[name].load(connection, keys)
        for position, operation in self._revised:
            revisions[operation.table].take(position, _complete(operation, revisions))
        for table in revisions.values():
            table.write(connection)
        for name, rows in self._recorded.items():
            insert_rows(connection, TABLES[name], rows)
        for name, many in self._many.items():
            insert_many(connection, TABLES[name], many)


def _complete(operation: Put | Ensure, revisions: Mapping[str, Revisions]) -> Put | Ensure:
    """The operation with the values that it copies from another table, as they were before it."""
    if not isinstance(operation, Ensure) or operation.taken is None:
        return operation
    copied_value = operation.taken
    row = revisions[copied_value.table].standing(copied_value.key) or {}
    copied = {name: row.get(name) for name in copied_value.columns}
    return msgspec.structs.replace(operation, values={**operation.values, **copied})
