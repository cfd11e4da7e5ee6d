"""Folds the log again and compares: shows byte for byte that the read model follows from the log (invariant 1).

Consumes the log from its start to the position of the live read model; produces a report. The live read model may advance
meanwhile: it is compared as of its position at the beginning. Invariant 9: nothing is published or changed.
"""

import asyncio
import time
from collections.abc import Iterator
from hashlib import sha256
from itertools import zip_longest
from typing import Any

import msgspec
from sqlalchemy import BigInteger, ColumnElement, Connection, Table, case, literal, select

from hindcast.core.errors import ForeignLog
from hindcast.events.log.port import EventLog
from hindcast.events.log.reader import check_log
from hindcast.storage.readmodel.database import ReadModel, ReadModelDamaged
from hindcast.storage.readmodel.fold import read_cursor
from hindcast.storage.readmodel.projector import bookmark_of, cursor_of, fill
from hindcast.storage.readmodel.tables import OPEN, TABLES

ROWS_PER_FETCH = 2000


_encoder = msgspec.json.Encoder()


def dump_table(connection: Connection, table: Table, *, as_of: int | None = None) -> Iterator[bytes]:
    """The rows of one table in the order of its key, each a JSON list of its columns and a newline."""
    columns: list[ColumnElement[Any]] = list(table.c)
    statement = select(*columns)
    if as_of is not None:
        if table.info["versioned"]:
            valid_to = case((table.c.valid_to > as_of, literal(OPEN, BigInteger)), else_=table.c.valid_to)
            columns = [
                valid_to.label("valid_to") if column.name == "valid_to" else column for column in columns
            ]
            statement = select(*columns).where(table.c.valid_from <= as_of)
        else:
            statement = statement.where(table.c.position <= as_of)
    ordered = statement.order_by(*table.primary_key).execution_options(yield_per=ROWS_PER_FETCH)
    for row in connection.execute(ordered):
        yield _encoder.encode(tuple(row)) + b"\n"


def dump(connection: Connection, *, as_of: int | None = None) -> Iterator[bytes]:
    """All tables, each after a line with its name."""
    for name, table in TABLES.items():
        yield f"# {name}: {', '.join(table.c.keys())}\n".encode()
        yield from dump_table(connection, table, as_of=as_of)


def digests(connection: Connection, *, as_of: int | None = None) -> dict[str, str]:
    """sha256 of each table's dump, by table name."""
    digest_by_table = {}
    for name, table in TABLES.items():
        digest = sha256()
        for line in dump_table(connection, table, as_of=as_of):
            digest.update(line)
        digest_by_table[name] = digest.hexdigest()
    return digest_by_table


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A table that does not follow from the log."""

    table: str
    columns: tuple[str, ...]
    rows: int
    """Rows that differ, counted in the order of the dump."""
    live: str | None
    """The first differing row; None: it is missing."""
    rebuilt: str | None
    """The same row as folded again; None: the log gives no such row."""


class RebuildReport(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a rebuild: whether the read model follows from the log, and what differs."""

    run: str
    identical: bool
    events: int
    events_per_s: float
    position: int
    """Position up to which both were compared."""
    filled: int
    """Events folded into the live read model: because it was empty, or to replace it."""
    replaced: bool
    """Whether the live read model was folded again because it differed."""
    notice: str | None
    differing: tuple[Difference, ...]
    """Tables that differ."""


async def rebuild(log: EventLog, database_url: str, *, replace: bool = False) -> RebuildReport:
    """Fold the log from its start into a fresh database and compare it with the live one.

    If there is no live read model, or one of another schema version, it is made first. `replace`: if they differ, the live
    one is damaged, or the log is not the one that was folded, empty the live one and fold it again.

    Raises:
        CorruptEvent, UnknownVersion, ForeignLog: the log cannot be folded; the message names the position.
        ReadModelUnavailable: a database does not answer.
        ReadModelDamaged: the live one's file is damaged, and `replace` is off.
    """
    try:
        return await _compare_with_fresh(log, database_url, replace=replace)
    except ReadModelDamaged as error:
        if not replace:
            raise
        live = ReadModel(database_url, run=log.run)
        try:
            await asyncio.to_thread(live.drop)
            await asyncio.to_thread(live.prepare)
            return await _fold_anew(log, live, reason=str(error))
        finally:
            live.close()


async def _compare_with_fresh(log: EventLog, database_url: str, *, replace: bool) -> RebuildReport:
    live = ReadModel(database_url, run=log.run)
    fresh = live.scratch("rebuild")
    notice: str | None = None
    filled = 0
    try:
        if await asyncio.to_thread(live.position) == 0:
            notice = await asyncio.to_thread(live.prepare)
            filled = await fill(log, live)
        standing = await asyncio.to_thread(cursor_of, live)
        assert standing is not None
        position = standing.position
        try:
            await check_log(log, after=position, bookmark=bookmark_of(standing))
        except ForeignLog as error:
            if not replace:
                raise
            return await _fold_anew(log, live, reason=str(error))
        await asyncio.to_thread(fresh.drop)
        await asyncio.to_thread(fresh.prepare)
        began = time.perf_counter()
        events = await fill(log, fresh, until=position)
        seconds = time.perf_counter() - began
        differing = await asyncio.to_thread(compare, live, fresh)
        await asyncio.to_thread(fresh.drop)
        if differing and replace:
            await asyncio.to_thread(live.reset)
            filled = await fill(log, live)
    finally:
        live.close()
        fresh.close()
    return RebuildReport(
        run=log.run,
        identical=not differing,
        events=events,
        events_per_s=round(events / seconds, 1) if seconds else 0.0,
        position=position,
        filled=filled,
        replaced=bool(differing) and replace,
        notice=notice,
        differing=tuple(differing),
    )


async def _fold_anew(log: EventLog, live: ReadModel, *, reason: str) -> RebuildReport:
    """Fold from the start without a comparison: the log is not the one that was folded, or lost its end."""
    await asyncio.to_thread(live.reset)
    began = time.perf_counter()
    filled = await fill(log, live)
    seconds = time.perf_counter() - began
    return RebuildReport(
        run=log.run,
        identical=False,
        events=filled,
        events_per_s=round(filled / seconds, 1) if seconds else 0.0,
        position=await asyncio.to_thread(live.position),
        filled=filled,
        replaced=True,
        notice=reason,
        differing=(),
    )


def compare(live: ReadModel, rebuilt: ReadModel) -> list[Difference]:
    """The tables of `live` that differ from those of `rebuilt`, as of the position of `rebuilt`."""
    with live.reading() as live_connection, rebuilt.reading() as rebuilt_connection:
        live_cursor, rebuilt_cursor = read_cursor(live_connection), read_cursor(rebuilt_connection)
        assert live_cursor is not None
        assert rebuilt_cursor is not None
        moved_on = live_cursor.position > rebuilt_cursor.position
        as_of = rebuilt_cursor.position if moved_on else None
        differences = [
            difference
            for name in TABLES
            if (difference := _compare_table(name, live_connection, rebuilt_connection, as_of)) is not None
        ]
        if not moved_on and live_cursor != rebuilt_cursor:
            differences.append(
                _difference(
                    "cursor",
                    live_cursor.__struct_fields__,
                    1,
                    _row_bytes(live_cursor),
                    _row_bytes(rebuilt_cursor),
                )
            )
        return differences


def _compare_table(name: str, live: Connection, rebuilt: Connection, as_of: int | None) -> Difference | None:
    table = TABLES[name]
    pairs = zip_longest(dump_table(live, table, as_of=as_of), dump_table(rebuilt, table, as_of=as_of))
    rows = 0
    first: tuple[bytes | None, bytes | None] = (None, None)
    for live_row, rebuilt_row in pairs:
        if live_row != rebuilt_row:
            first = first if rows else (live_row, rebuilt_row)
            rows += 1
    return _difference(name, tuple(table.c.keys()), rows, *first) if rows else None


def _difference(
    table: str, columns: tuple[str, ...], rows: int, live: bytes | None, rebuilt: bytes | None
) -> Difference:
    return Difference(
        table=table,
        columns=columns,
        rows=rows,
        live=None if live is None else live.decode().strip(),
        rebuilt=None if rebuilt is None else rebuilt.decode().strip(),
    )


def _row_bytes(value: msgspec.Struct) -> bytes:
    return msgspec.json.encode(msgspec.structs.astuple(value))
