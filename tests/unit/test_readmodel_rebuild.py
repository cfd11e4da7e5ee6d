"""Rebuild: the same log gives the same bytes, and whatever does not follow from the log is named."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, insert, inspect, select, update

from hindcast.core.errors import CorruptEvent
from hindcast.core.settings.schema import StorageSettings
from hindcast.events.envelope import Stored
from hindcast.events.log.memory import MemoryLog
from hindcast.storage.readmodel.database import ReadModel
from hindcast.storage.readmodel.projector import run_projector
from hindcast.storage.readmodel.rebuild import rebuild
from hindcast.storage.readmodel.tables import OPEN, cursor, episodes, steps, verdicts
from stories.synthetic_run import a_run, record, recorded_run

SETTINGS = StorageSettings()


def tamper(url: str, *statements: Any) -> None:
    model = ReadModel(url, run="tale")
    with model.writing() as connection:
        for statement in statements:
            changed = connection.execute(statement).rowcount
            assert changed == 1 or statement.is_insert
    model.close()


async def test_an_untouched_read_model_is_identical_and_nothing_is_left_behind(
    url: str, tmp_path: Path
) -> None:
    log, recordeds = await recorded_run(1)
    await run_projector(log, url, SETTINGS, until=len(recordeds))
    report = await rebuild(log, url)
    assert report.identical
    assert (report.events, report.position, report.filled) == (len(recordeds), len(recordeds), 0)
    assert report.events_per_s > 0
    assert report.differing == ()
    assert not [path.name for path in tmp_path.iterdir() if "rebuild" in path.name]
    model = ReadModel(url, run="tale")
    with model.writing() as connection:
        assert not [name for name in inspect(connection).get_schema_names() if "rebuild" in name]
    model.close()


@pytest.mark.parametrize(
    ("table", "statement"),
    [
        (
            "episodes",
            update(episodes).where(episodes.c.valid_from == 100).values(state="ended", reason="won"),
        ),
        ("verdicts", update(verdicts).where(verdicts.c.position > 0).values(outcome="success")),
        ("steps", delete(steps)),
        ("steps", insert(steps).values(position=10**6, episode="ep_invented")),
        ("cursor", update(cursor).values(log_digest="00" * 32)),
    ],
    ids=["changed", "flipped", "removed", "added", "cursor"],
)
async def test_a_tampered_row_is_found_and_shown(url: str, table: str, statement: Any) -> None:
    log, recordeds = await recorded_run(1)
    await run_projector(log, url, SETTINGS, until=len(recordeds))
    model = ReadModel(url, run="tale")
    with model.reading() as connection:
        one_step = connection.scalar(select(steps.c.position))
        one_failure = connection.scalar(select(verdicts.c.position).where(verdicts.c.outcome == "failure"))
        one_episode = connection.scalar(
            select(episodes.c.valid_from).where(episodes.c.valid_to == OPEN, episodes.c.state == "abandoned")
        )
    model.close()
    if statement.is_delete:
        statement = statement.where(steps.c.position == one_step)
    elif table == "verdicts":
        statement = update(verdicts).where(verdicts.c.position == one_failure).values(outcome="success")
    elif table == "episodes":
        statement = update(episodes).where(episodes.c.valid_from == one_episode).values(state="ended")
    tamper(url, statement)
    report = await rebuild(log, url)
    assert not report.identical
    (difference,) = report.differing
    assert difference.table == table
    assert difference.live != difference.rebuilt
    assert difference.rows >= 1


async def test_a_difference_can_be_replaced_by_what_the_log_says(url: str) -> None:
    log, recordeds = await recorded_run(1)
    await run_projector(log, url, SETTINGS, until=len(recordeds))
    tamper(url, update(cursor).values(log_digest="00" * 32))
    report = await rebuild(log, url, replace=True)
    assert (report.identical, report.replaced, report.filled) == (False, True, len(recordeds))
    assert (await rebuild(log, url)).identical


async def test_where_there_is_no_read_model_it_is_made(url: str) -> None:
    log, recordeds = await recorded_run(1)
    report = await rebuild(log, url)
    assert (report.identical, report.filled, report.position) == (True, len(recordeds), len(recordeds))
    assert (await rebuild(log, url)).filled == 0


async def test_a_read_model_that_lags_is_compared_where_it_stands(url: str) -> None:
    log, _ = await recorded_run(1)
    await run_projector(log, url, SETTINGS, until=50)
    report = await rebuild(log, url)
    assert (report.identical, report.position, report.events) == (True, 50, 50)


async def test_a_live_read_model_may_go_on_meanwhile(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    log, recordeds = await recorded_run(1)
    await run_projector(log, url, SETTINGS, until=50)
    compared = ReadModel.prepare

    def overtaken(model: ReadModel) -> str | None:
        notice = compared(model)
        if model.is_scratch:
            from hindcast.storage.readmodel.fold import apply

            live = ReadModel(url, run="tale")
            with live.writing() as connection:
                apply(connection, recordeds[50:])
            live.close()
        return notice

    monkeypatch.setattr(ReadModel, "prepare", overtaken)
    report = await rebuild(log, url)
    assert (report.identical, report.position) == (True, 50)


async def test_an_empty_log_is_identical_to_nothing(url: str) -> None:
    report = await rebuild(MemoryLog("tale"), url)
    assert (report.identical, report.events, report.position) == (True, 0, 0)


async def test_a_damaged_event_stops_the_rebuild_and_names_its_position(url: str) -> None:
    log = MemoryLog("tale")
    await record(log, a_run(1))
    await run_projector(log, url, SETTINGS, until=80)
    hurt = log.events[29]
    log.events[29] = Stored(30, hurt.subject, hurt.data[:-3] + b"\xff\xff\xff", hurt.id)
    with pytest.raises(CorruptEvent, match="30"):
        await rebuild(log, url)
