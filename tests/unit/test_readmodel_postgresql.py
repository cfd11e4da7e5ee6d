"""PostgreSQL as it differs from SQLite: order of text, schemas, a server that goes away, passwords."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import inspect, text
from structlog.testing import capture_logs

from hindcast.app.settings.configuration import resolve
from hindcast.core.domain.task import Task
from hindcast.core.errors import SettingsError
from hindcast.core.settings.schema import StorageSettings
from hindcast.events.catalogue import TaskAdmitted, TaskProposed, WeightsAdopted
from hindcast.events.envelope import Record, Recorded
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.reader import read
from hindcast.storage.readmodel.address import LONGEST_NAME, schema_name
from hindcast.storage.readmodel.database import DatabaseAway, ReadModel, ReadModelUnavailable
from hindcast.storage.readmodel.fold import read_cursor
from hindcast.storage.readmodel.outcome_counts import success_by_version
from hindcast.storage.readmodel.projector import ReadModelEffect, fill, run_projector
from hindcast.storage.readmodel.rebuild import dump, rebuild
from hindcast.storage.readmodel.run_queries import list_policies, run_summary
from hindcast.storage.readmodel.sqlite_address import sqlite_address
from hindcast.storage.readmodel.task_queries import list_tasks
from servers.postgres_server import PASSWORD, LivePostgres
from stories.synthetic_run import Tale, Told, a_run, record, recorded_run

pytestmark = pytest.mark.process

SETTINGS = StorageSettings(project_events=16)
WAIT_S = 30.0
NAMES = ("zebra", "Zebra", "Äpfel", "apfel", "a b", "a_b", "a-b", "ab", "AB", "éclair", "_under", "10", "9")
"""Sorted by a language in another order than by their bytes."""


@pytest.fixture
def server_address(postgres: LivePostgres) -> Iterator[str]:
    database = postgres.take_database()
    yield postgres.address(database)
    postgres.give_back(database)


@contextmanager
def opened(address: str, run: str = "tale", *, schema: str | None = None) -> Iterator[ReadModel]:
    model = ReadModel(address, run=run, schema=schema)
    yield model
    model.close()


def content(address: str, run: str = "tale") -> list[bytes]:
    with opened(address, run) as model, model.reading() as connection:
        return [*dump(connection), repr(read_cursor(connection)).encode()]


def answers(address: str) -> list[object]:
    with opened(address) as model, model.reading() as connection:
        questions = (list_tasks, list_policies, success_by_version, run_summary)
        return [ask(connection) for ask in questions]


async def a_log_of_all_kinds() -> tuple[MemoryLog, list[Recorded]]:
    """A run of every type of fact, then names and numbers that databases treat differently."""
    log, _ = await recorded_run(7, groups=6)
    odd = []
    for number, name in enumerate(NAMES):
        task = Task(
            environment="store", family=name, seed=number, instruction=name, goal={name: -0.0}, max_steps=3
        )
        odd.append(Told("odd", task.id, TaskProposed(task=task, source="seeded")))
        odd.append(Told("odd", name, TaskAdmitted(task_id=name, phase=0, value=-0.0)))
        odd.append(Told("odd", name, WeightsAdopted(actor=name, version=0, load_ms=-0.0)))
    step = Tale(1, groups=1, group_size=1, run="tale")._step("ep_1", 0, last=False)
    hostile = msgspec.structs.replace(step, url="http://\x00/", observe_ms=float("nan"), act_ms=float("inf"))
    odd.append(Told("odd", "ep_1", hostile))
    await record(log, odd, seed=99)
    return log, [recorded async for recorded in read(log)]


async def test_the_dump_and_the_answers_are_those_of_sqlite_byte_for_byte(
    server_address: str, tmp_path: Path
) -> None:
    log, recordeds = await a_log_of_all_kinds()
    sqlite = f"sqlite:///{tmp_path}/readmodel.sqlite"
    for address in (sqlite, server_address):
        await run_projector(log, address, SETTINGS, until=len(recordeds))
    assert content(server_address) == content(sqlite)
    assert answers(server_address) == answers(sqlite)


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
async def test_plain_sql_reads_the_run_s_tables_and_changes_nothing(
    server_address: str, tmp_path: Path, database: str
) -> None:
    address = server_address if database == "postgresql" else sqlite_address(tmp_path / "model.sqlite")
    log, _ = await recorded_run(7, groups=6)
    with opened(address) as model:
        model.prepare()
        await fill(log, model)
        with model.reading() as connection:
            count = connection.scalar(text("select count(*) from episodes"))
            assert count
        for change in ("delete from episodes", "create table mine (a int)", "update episodes set steps = 0"):
            with pytest.raises(ReadModelUnavailable), model.reading() as connection:
                connection.execute(text(change))
        with model.reading() as connection:
            assert connection.scalar(text("select count(*) from episodes")) == count
        model.reset()
        await fill(log, model)


async def test_two_runs_share_a_database_without_meeting(server_address: str) -> None:
    logs = []
    for run in ("one", "two"):
        log = MemoryLog(run)
        await record(log, a_run(1, groups=2 if run == "one" else 3, run=run))
        await run_projector(log, server_address, SETTINGS, until=len(log.events))
        logs.append(log)
    one, two = logs
    before = content(server_address, "two")
    with opened(server_address, "one") as model:
        model.reset()
        assert model.position() == 0
    assert content(server_address, "two") == before
    assert (await rebuild(two, server_address)).identical
    assert (await rebuild(one, server_address)).filled == len(one.events)


async def test_a_run_with_the_longest_name_keeps_its_own_schemas(server_address: str) -> None:
    names = ["r" * 47 + "1", "r" * 47 + "2"]
    schemas = {schema_name(run, suffix) for run in names for suffix in ("", "_rebuild")}
    assert len(schemas) == 4
    assert all(len(schema) <= LONGEST_NAME for schema in schemas)
    log = MemoryLog(names[0])
    await record(log, a_run(1, groups=2, run=names[0]))
    await run_projector(log, server_address, SETTINGS, until=len(log.events))
    assert (await rebuild(log, server_address)).identical
    with opened(server_address, names[0]) as model, model.reading() as connection:
        found = inspect(connection).get_schema_names()
    assert [name for name in found if name.startswith("hindcast")] == [schema_name(names[0])]


async def test_a_user_who_may_make_no_schemas_can_use_one_that_is_there(
    postgres: LivePostgres, server_address: str
) -> None:
    database = server_address.rsplit("/", 1)[1]
    postgres.execute(f"CREATE ROLE narrow LOGIN PASSWORD '{PASSWORD}'")
    postgres.execute(f"CREATE SCHEMA {schema_name('tale')} AUTHORIZATION narrow", database=database)
    narrow = server_address.replace("tester@", "narrow@")
    log, recordeds = await recorded_run(1, groups=2)
    try:
        await run_projector(log, narrow, SETTINGS, until=len(recordeds))
        assert content(narrow) == content(server_address)
    finally:
        postgres.execute("DROP OWNED BY narrow CASCADE", database=database)
        postgres.execute("DROP ROLE narrow")


async def test_a_server_that_goes_away_and_comes_back_is_waited_for(
    postgres: LivePostgres, server_address: str, tmp_path: Path
) -> None:
    """Down when the projector starts, then cut off in the midst of the log; nothing is lost or doubled."""
    whole, recordeds = await recorded_run(3, groups=8)
    sqlite = f"sqlite:///{tmp_path}/readmodel.sqlite"
    await run_projector(whole, sqlite, SETTINGS, until=len(recordeds))
    reached = asyncio.Event()
    half = len(recordeds) // 2

    def progress(position: int) -> None:
        if position >= half:
            reached.set()

    async def restart(group: asyncio.TaskGroup) -> None:
        log = MemoryLog("tale")
        await grow(log, whole, half)
        projecting = group.create_task(
            run_projector(log, server_address, SETTINGS, until=len(recordeds), on_progress=progress)
        )
        await until_said(said, "waiting for the database", 1)
        await asyncio.to_thread(postgres.start)
        await reached.wait()
        await asyncio.to_thread(postgres.stop)
        await grow(log, whole, len(recordeds))
        await until_said(said, "waiting for the database", 2)
        await asyncio.to_thread(postgres.start)
        assert await projecting == len(recordeds)

    postgres.stop()
    try:
        with capture_logs() as said:
            async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
                await restart(group)
    finally:
        postgres.stop()
        postgres.start()
    assert content(server_address) == content(sqlite)
    waits = [line for line in said if line["event"] == "waiting for the database"]
    assert len(waits) == 2, "told once each time, not at every try"
    assert all("Check that the server runs there" in line["error"] for line in waits)
    assert [line["event"] for line in said].count("the database answers again") == 2


async def grow(log: MemoryLog, whole: MemoryLog, until: int) -> None:
    missing = whole.events[len(log.events) : until]
    await log.append([Record(stored.subject, stored.data, stored.id) for stored in missing])


async def until_said(said: list[object], words: str, times: int) -> None:
    while sum(words in str(line) for line in said) < times:  # noqa: ASYNC110 - a list
        await asyncio.sleep(0.05)


async def test_a_wait_for_a_server_ends_at_its_bound(postgres: LivePostgres) -> None:
    log, _ = await recorded_run(1, groups=1)
    nowhere = postgres.address("postgres").replace(f":{postgres.port}", ":1")
    settings = StorageSettings(database_wait_s=0.1)
    with pytest.raises(ReadModelUnavailable, match=r"not answered for 0\.1 s \(storage\.database_wait_s\)"):
        await run_projector(log, nowhere, settings)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("//tester@", "//nobody@"), "password authentication failed"),
        (("/test_", "/no_such_test_"), "does not exist"),
    ],
    ids=["user", "database"],
)
def test_what_the_server_refuses_is_a_worded_error_without_the_password(
    server_address: str, change: tuple[str, str], words: str
) -> None:
    with opened(server_address.replace(*change)) as model:
        with pytest.raises(ReadModelUnavailable, match=words) as raised:
            model.prepare()
        assert PASSWORD not in str(raised.value)
        assert PASSWORD not in model.shown_url


async def test_a_batch_whose_commit_was_kept_without_a_word_is_not_folded_twice(
    server_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection ends after COMMIT arrived and before its answer did."""
    log, recordeds = await recorded_run(1, groups=2)
    await run_projector(log, server_address, SETTINGS, until=10)
    with opened(server_address) as model:
        effect = ReadModelEffect(model)
        assert await effect.position() == 10
        committed = model.writing

        @contextmanager
        def cut() -> Iterator[object]:
            with committed() as connection:
                yield connection
            raise DatabaseAway("the connection was lost")

        with monkeypatch.context() as patch:
            patch.setattr(model, "writing", cut)
            with pytest.raises(ReadModelUnavailable):
                await effect.apply(recordeds[10:20], 20)
        await effect.apply(recordeds[10:20], 20)
        await effect.apply(recordeds[20:30], 30)
        assert model.position() == 30
    assert (await rebuild(log, server_address)).identical


def test_settings_with_a_password_for_the_database_are_refused_before_a_run_could_record_them(
    tmp_path: Path,
) -> None:
    address = "storage.database=postgresql+psycopg://user:secret@host/name"
    with pytest.raises(SettingsError, match=r"PGPASSWORD.*pgpass") as raised:
        resolve(environment={}, folder=tmp_path, overrides=[address])
    assert "secret" not in str(raised.value)
    allowed = resolve(environment={}, folder=tmp_path, overrides=[address.replace(":secret", "")])
    assert allowed.settings.storage.database == "postgresql+psycopg://user@host/name"
