"""Rows and their validity, the position in the same transaction, and what is refused."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, select, update
from sqlalchemy.schema import CreateSchema

from hindcast.core.errors import ForeignLog, SettingsError
from hindcast.core.settings.schema import LogSettings
from hindcast.events.catalogue import EpisodeCancelled, EpisodeRequested, EpisodeStarted
from hindcast.events.envelope import Recorded
from hindcast.events.log.hash_chain import RollingDigest
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.reader import read
from hindcast.storage.readmodel.address import parse
from hindcast.storage.readmodel.database import ReadModel, ReadModelUnavailable
from hindcast.storage.readmodel.fold import PositionRefused, Span, apply, read_cursor
from hindcast.storage.readmodel.rebuild import dump
from hindcast.storage.readmodel.tables import OPEN, TABLES, cursor, episodes, weights
from servers.postgres_server import NewDatabase
from stories.synthetic_run import recorded_run


@pytest.fixture
def model(url: str) -> Iterator[ReadModel]:
    made = ReadModel(url, run="tale")
    assert made.prepare() is None
    yield made
    made.close()


def fold(model: ReadModel, recordeds: list[Recorded], *, size: int = 1000) -> None:
    for start in range(0, len(recordeds), size):
        with model.writing() as connection:
            apply(connection, recordeds[start : start + size])


def whole(connection: Connection) -> bytes:
    return b"".join(dump(connection))


async def test_the_rows_of_a_changing_thing_cover_its_life_without_gap_or_overlap(model: ReadModel) -> None:
    _, recordeds = await recorded_run(1, groups=6)
    fold(model, recordeds)
    with model.reading() as connection:
        for table in TABLES.values():
            if not table.info["versioned"]:
                continue
            ends: dict[tuple[str, ...], int] = {}
            for row in connection.execute(select(table).order_by(table.c.valid_from)).mappings():
                key = tuple(row[name] for name in table.info["key"])
                assert ends.get(key, row["valid_from"]) == row["valid_from"], f"{table.name} {key}"
                assert row["valid_from"] < row["valid_to"]
                ends[key] = row["valid_to"]
            assert ends
            assert set(ends.values()) == {OPEN}, table.name


async def test_an_episode_passes_through_its_states(model: ReadModel) -> None:
    _, recordeds = await recorded_run(1, groups=6)
    fold(model, recordeds)
    with model.reading() as connection:
        ended = connection.scalars(select(episodes.c.episode).where(episodes.c.state == "ended")).first()
        life = select(episodes.c.state).where(episodes.c.episode == ended).order_by(episodes.c.valid_from)
        states = list(connection.scalars(life))
    assert states[:3] == ["requested", "started", "ended"]


async def test_an_episode_that_is_cancelled_while_an_actor_takes_it_stays_cancelled(model: ReadModel) -> None:
    _, recordeds = await recorded_run(1, groups=2)
    taken = next(recorded.fact for recorded in recordeds if isinstance(recorded.fact, EpisodeRequested))
    late = [
        EpisodeCancelled(episode=taken.episode, task_id=taken.task.id, reason="drain", detail=""),
        EpisodeStarted(episode=taken.episode, actor="actor.9", instruction="", renderer="lines/1"),
    ]
    own = MemoryLog("tale")
    async with Publisher(own, producer="story", code_rev="", settings=LogSettings()) as publisher:
        for fact in (recordeds[0].fact, taken, *late):
            await publisher.publish(fact, entity=taken.episode)
    fold(model, [recorded async for recorded in read(own)])
    with model.reading() as connection:
        row = connection.execute(select(episodes).where(episodes.c.valid_to == OPEN)).mappings().one()
    assert (row["state"], row["actor"]) == ("cancelled", "actor.9")


@pytest.mark.parametrize("size", [1, 2, 7, 50])
async def test_the_size_of_the_batches_leaves_no_mark(
    model: ReadModel, new_database: NewDatabase, size: int
) -> None:
    _, recordeds = await recorded_run(3, groups=4)
    fold(model, recordeds)
    other = ReadModel(new_database(), run="tale")
    other.prepare()
    fold(other, recordeds, size=size)
    with model.reading() as one, other.reading() as two:
        assert whole(one) == whole(two)
        assert read_cursor(one) == read_cursor(two)
    other.close()


async def test_the_cursor_holds_position_digests_and_run(model: ReadModel) -> None:
    _, recordeds = await recorded_run(1)
    fold(model, recordeds, size=9)
    digest = RollingDigest()
    for recorded in recordeds:
        digest.advance(recorded.digest)
    with model.reading() as connection:
        standing = read_cursor(connection)
    assert standing is not None
    assert (standing.run, standing.position) == ("tale", len(recordeds))
    assert standing.log_digest == digest.value.hex()
    assert standing.first_digest == recordeds[0].digest.hex()
    assert standing.last_digest == recordeds[-1].digest.hex()


async def test_an_event_at_or_below_the_position_is_refused_and_changes_nothing(model: ReadModel) -> None:
    _, recordeds = await recorded_run(1)
    fold(model, recordeds[:10])
    with model.reading() as connection:
        before = whole(connection)
    for again in (recordeds[9:12], recordeds[:3]):
        with pytest.raises(PositionRefused, match="is at position 10"), model.writing() as connection:
            apply(connection, again)
    with model.reading() as connection:
        assert whole(connection) == before


async def test_a_gap_is_refused(model: ReadModel) -> None:
    _, recordeds = await recorded_run(1)
    with pytest.raises(PositionRefused, match="was given position 5"), model.writing() as connection:
        apply(connection, [*recordeds[:3], recordeds[4]])
    with model.reading() as connection:
        standing = read_cursor(connection)
    assert standing is not None
    assert standing.position == 0


async def test_a_reader_that_passes_over_unknown_types_says_how_far_it_has_read(model: ReadModel) -> None:
    _, recordeds = await recorded_run(1)
    with model.writing() as connection:
        moved = apply(connection, [*recordeds[:3], *recordeds[4:6]], span=Span(after=0, reached=8))
    assert (moved.position, moved.last_position, moved.last_digest) == (8, 6, recordeds[5].digest.hex())
    with model.writing() as connection:
        assert apply(connection, [], span=Span(after=8, reached=9)).position == 9
    with pytest.raises(PositionRefused), model.writing() as connection:
        apply(connection, [], span=Span(after=8, reached=12))


async def test_the_position_and_its_effect_are_kept_together_or_not_at_all(model: ReadModel) -> None:
    _, recordeds = await recorded_run(1)
    fold(model, recordeds[:20])
    with model.reading() as connection:
        before = whole(connection)

    class PowerCut(Exception):
        pass

    def interrupted() -> None:
        with model.writing() as connection:
            apply(connection, recordeds[20:60])
            raise PowerCut

    with pytest.raises(PowerCut):
        interrupted()
    with model.reading() as connection:
        assert whole(connection) == before
        standing = read_cursor(connection)
    assert standing is not None
    assert standing.position == 20
    fold(model, recordeds[20:])


async def test_all_questions_of_one_reading_see_the_same_state(model: ReadModel) -> None:
    _, recordeds = await recorded_run(1)
    fold(model, recordeds[:30])
    with model.reading() as connection:
        before = whole(connection)
        fold(model, recordeds[30:])
        assert whole(connection) == before
    with model.reading() as connection:
        assert whole(connection) != before


def test_a_read_model_of_another_schema_version_is_emptied_and_says_so(model: ReadModel) -> None:
    with model.writing() as connection:
        connection.execute(update(cursor).values(schema_version=0, position=77))
    with pytest.raises(ReadModelUnavailable, match=r"schema version 0.*hindcast rebuild"), model.reading():
        pass
    assert model.position() == 0
    notice = model.prepare()
    assert notice is not None
    assert "schema version 0" in notice
    assert "nothing is lost" in notice
    with model.reading() as connection:
        standing = read_cursor(connection)
    assert standing is not None
    assert standing.position == 0


def test_the_read_model_of_another_run_is_refused(model: ReadModel, url: str) -> None:
    other = ReadModel(url, run="other", schema=model.schema)
    with pytest.raises(ForeignLog, match="of run tale, not of other"):
        other.prepare()
    with pytest.raises(ForeignLog), other.reading():
        pass
    other.close()


def test_a_database_with_tables_of_other_people_is_left_alone(url: str) -> None:
    shop = ReadModel(url, run="tale")
    with shop.writing() as connection:
        if shop.schema:
            connection.execute(CreateSchema(shop.schema))
        weights.create(connection)
    with pytest.raises(ReadModelUnavailable, match=r"weights.*storage\.database"):
        shop.prepare()
    shop.close()


def test_a_missing_read_model_is_not_made_by_asking(tmp_path: Path) -> None:
    absent = ReadModel(f"sqlite:///{tmp_path}/none.sqlite", run="tale")
    with pytest.raises(ReadModelUnavailable, match="hindcast rebuild tale"), absent.reading():
        pass
    assert absent.position() == 0
    assert list(tmp_path.iterdir()) == []
    absent.close()


def test_a_damaged_file_is_a_worded_error(tmp_path: Path) -> None:
    (tmp_path / "bad.sqlite").write_bytes(b"this is not a database at all" * 100)
    damaged = ReadModel(f"sqlite:///{tmp_path}/bad.sqlite", run="tale")
    with pytest.raises(ReadModelUnavailable, match="hindcast rebuild tale --replace"):
        damaged.prepare()
    damaged.close()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("no address", "is not a database address"),
        ("sqlite+nothing://", "its driver is not installed"),
        ("oracle://x/y", "can be SQLite or PostgreSQL"),
    ],
)
def test_an_address_that_is_none_is_a_worded_error(url: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        ReadModel(url, run="tale")


@pytest.mark.parametrize(
    "driver", ["psycopg2", "pg8000", "psycopg2cffi", "asyncpg", "psycopg_async", "nothing"]
)
def test_a_driver_of_postgresql_that_is_not_ours_is_refused_whether_installed_or_not(driver: str) -> None:
    address = f"postgresql+{driver}://me@host/name?sslmode=require"
    words = rf"storage\.database = postgresql\+{driver}://me@host.* driver '{driver}'.*postgresql\+psycopg://"
    with pytest.raises(SettingsError, match=words):
        parse(address)
    with pytest.raises(SettingsError, match=r"^--store = ") as refused:
        parse(address + "&password=secret", source="--store")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("address", ["postgresql://me@host/name", "postgresql+psycopg://me@host/name"])
def test_our_driver_is_taken_named_or_not(address: str) -> None:
    assert parse(address).get_backend_name() == "postgresql"


@pytest.mark.parametrize(
    "address",
    [
        "oracle+nothing://me:secret@host/name",
        "postgresql me:secret@host/name",
        "postgresql://me:secret@host/name",
        "postgresql://me@host/name?password=secret",
        "postgresql://me@host/name?sslkey=key&sslpassword=secret",
    ],
)
def test_a_password_in_the_address_is_refused_and_never_shown(address: str) -> None:
    with pytest.raises(SettingsError) as raised:
        ReadModel(address, run="tale")
    assert "secret" not in str(raised.value)
