"""The projector: its own position, restarts, foreign and regressed logs."""

import asyncio

import msgspec
import pytest
from sqlalchemy import update
from structlog.testing import capture_logs

from hindcast.core.errors import ForeignLog, UnknownVersion
from hindcast.core.settings.schema import StorageSettings
from hindcast.events.codec import encode
from hindcast.events.envelope import Record, Stored
from hindcast.events.log.memory import MemoryLog
from hindcast.storage.readmodel.database import ReadModel
from hindcast.storage.readmodel.fold import PositionRefused, read_cursor
from hindcast.storage.readmodel.projector import ReadModelEffect, run_projector
from hindcast.storage.readmodel.rebuild import dump, rebuild
from hindcast.storage.readmodel.tables import cursor
from servers.postgres_server import NewDatabase
from stories.synthetic_run import a_run, record, recorded_run

SETTINGS = StorageSettings(project_events=16)
WAIT_S = 20.0


def content(url: str, run: str = "tale") -> bytes:
    model = ReadModel(url, run=run)
    with model.reading() as connection:
        found = b"".join(dump(connection)) + repr(read_cursor(connection)).encode()
    model.close()
    return found


def position(url: str) -> int:
    model = ReadModel(url, run="tale")
    reached = model.position()
    model.close()
    return reached


class Killed(Exception):
    pass


async def grow(log: MemoryLog, whole: MemoryLog, until: int) -> None:
    """Append what another log holds, up to a position."""
    missing = whole.events[len(log.events) : until]
    await log.append([Record(stored.subject, stored.data, stored.id) for stored in missing])


async def project_growing(log: MemoryLog, whole: MemoryLog, url: str, until: int, *, step: int) -> None:
    """Run the projector while the log grows; it is killed once it has come to `until`."""
    caught_up = asyncio.Event()

    def progress(reached: int) -> None:
        caught_up.set()
        if reached >= until:
            raise Killed

    async def grow_on() -> None:
        await caught_up.wait()
        while len(log.events) < until:
            await grow(log, whole, min(until, len(log.events) + step))

    try:
        async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
            group.create_task(run_projector(log, url, SETTINGS, on_progress=progress))
            group.create_task(grow_on())
    except* Killed:
        assert position(url) == until


async def test_it_follows_a_log_that_grows(url: str) -> None:
    whole, recordeds = await recorded_run(1)
    log = MemoryLog("tale")
    await grow(log, whole, 10)
    await project_growing(log, whole, url, len(recordeds), step=13)
    report = await rebuild(log, url)
    assert (report.identical, report.position, report.filled) == (True, len(recordeds), 0)


async def test_stopped_and_started_anywhere_it_loses_nothing_and_doubles_nothing(
    url: str, new_database: NewDatabase
) -> None:
    whole, recordeds = await recorded_run(2, groups=5)
    straight = new_database()
    await run_projector(whole, straight, SETTINGS, until=len(recordeds))
    log = MemoryLog("tale")
    for until in [*range(7, len(recordeds), 31), len(recordeds)]:
        await grow(log, whole, until - 3)  # written while it was away: caught up with at its start
        await project_growing(log, whole, url, until, step=2)
    assert content(url) == content(straight)


async def test_a_failed_transaction_leaves_position_and_rows_where_they_were(url: str) -> None:
    log, recordeds = await recorded_run(1)
    await run_projector(log, url, SETTINGS, until=40)
    before = content(url)
    model = ReadModel(url, run="tale")
    effect = ReadModelEffect(model)
    assert await effect.position() == 40
    broken = [*recordeds[40:60], "no event"]
    with pytest.raises(AttributeError):
        await effect.apply(broken, 61)  # type: ignore[list-item]
    assert content(url) == before
    await effect.apply(recordeds[40:60], 60)
    model.close()
    assert position(url) == 60


async def test_two_projectors_on_one_database_are_found_out(url: str) -> None:
    log, recordeds = await recorded_run(1)
    await run_projector(log, url, SETTINGS, until=10)
    one, other = ReadModel(url, run="tale"), ReadModel(url, run="tale")
    first, second = ReadModelEffect(one), ReadModelEffect(other)
    assert await first.position() == await second.position() == 10
    await first.apply(recordeds[10:20], 20)
    with pytest.raises(PositionRefused, match="two projectors"):
        await second.apply(recordeds[10:20], 20)
    one.close()
    other.close()


async def test_another_log_under_the_same_name_is_refused(url: str) -> None:
    log, recordeds = await recorded_run(1)
    await run_projector(log, url, SETTINGS, until=len(recordeds))
    before = content(url)
    foreign, _ = await recorded_run(2, groups=6)
    with pytest.raises(ForeignLog, match="begins with another event"):
        await run_projector(foreign, url, SETTINGS, until=len(recordeds) + 1)
    with pytest.raises(ForeignLog):
        await rebuild(foreign, url)
    assert content(url) == before


async def test_a_log_that_lost_its_end_is_refused(url: str) -> None:
    log, recordeds = await recorded_run(1)
    await run_projector(log, url, SETTINGS, until=len(recordeds))
    shorter = MemoryLog("tale")
    await record(shorter, a_run(1)[:50])
    with pytest.raises(ForeignLog, match="ends at position 50"):
        await run_projector(shorter, url, SETTINGS, until=len(recordeds) + 1)
    with pytest.raises(ForeignLog):
        await rebuild(shorter, url)


async def test_a_log_written_anew_after_losing_its_end_is_refused(url: str) -> None:
    log, _ = await recorded_run(1)
    await run_projector(log, url, SETTINGS, until=60)
    other, _ = await recorded_run(1, groups=6)
    changed = other.events[59]
    other.events[59] = Stored(60, changed.subject, changed.data + b"\x00", changed.id)
    with pytest.raises(ForeignLog, match="another event at position 60"):
        await run_projector(other, url, SETTINGS, until=len(other.events))


async def test_a_read_model_of_an_older_schema_is_folded_again_with_a_notice(
    url: str,
) -> None:
    log, recordeds = await recorded_run(1)
    await run_projector(log, url, SETTINGS, until=len(recordeds))
    before = content(url)
    model = ReadModel(url, run="tale")
    with model.writing() as connection:
        connection.execute(update(cursor).values(schema_version=0))
    model.close()
    with capture_logs() as said:
        await run_projector(log, url, SETTINGS, until=len(recordeds))
    assert any("schema version 0" in str(line["event"]) for line in said)
    assert content(url) == before


async def test_a_type_of_a_newer_version_is_passed_over_live_and_refused_in_a_rebuild(url: str) -> None:
    whole, recordeds = await recorded_run(1)
    log = MemoryLog("tale")
    await grow(log, whole, 40)
    heard = recordeds[0].envelope
    unheard = msgspec.structs.replace(
        heard, id="new", type="thing.invented", incarnation="new-1", producer_seq=0
    )
    await log.append([Record("run.tale.thing.new-1", encode(unheard), "new")])
    later = [Record(stored.subject, stored.data, stored.id) for stored in whole.events[40:60]]
    await run_projector(log, url, SETTINGS, until=41)
    assert position(url) == 41
    await log.append(later)
    await run_projector(log, url, SETTINGS, until=61)
    assert position(url) == 61
    model = ReadModel(url, run="tale")
    with model.reading() as connection:
        standing = read_cursor(connection)
    model.close()
    assert standing is not None
    assert standing.last_position == 61
    with pytest.raises(UnknownVersion, match=r"position 41 holds a 'thing\.invented'"):
        await rebuild(log, url)
