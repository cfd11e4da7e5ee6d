"""As of position N, the read model of a longer log answers what one that stops at N answers."""

import asyncio
from collections.abc import Callable
from functools import cache
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from postgres_server import LivePostgres
from sqlalchemy import Connection
from synthetic_run import recorded_run

from events.envelope import Recorded
from storage.readmodel.database import ReadModel
from storage.readmodel.dump import digests, dump
from storage.readmodel.fold import apply, read_cursor
from storage.readmodel.queries import (
    list_episodes,
    list_policies,
    list_tasks,
    run_summary,
    show_episode,
    success_by_version,
    throughput,
)

SEEDS = (1, 2, 3)


@cache
def events_of(seed: int) -> list[Recorded]:
    return asyncio.run(recorded_run(seed, groups=5, group_size=4))[1]


def folded(
    place: Callable[[], ReadModel], recordeds: list[Recorded], *, cuts: list[int] | None = None
) -> ReadModel:
    model = place()
    model.prepare()
    start = 0
    for end in [*sorted(set(cuts or [])), len(recordeds)]:
        with model.writing() as connection:
            apply(connection, recordeds[start:end])
        start = end
    return model


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Gives an empty read model each time it is called; all of them go with the module."""
    numbers = count()
    if request.param == "sqlite":
        folder = tmp_path_factory.mktemp("models")
        yield lambda: ReadModel(f"sqlite:///{folder}/{next(numbers)}.sqlite", run="tale")
        return
    server: LivePostgres = request.getfixturevalue("postgres")
    database = server.take_database()
    address = server.address(database)
    yield lambda: ReadModel(address, run="tale", schema=f"hindcast_{next(numbers)}")
    server.give_back(database)


@pytest.fixture(scope="module")
def whole(place: Callable[[], ReadModel]) -> Any:
    models = {seed: folded(place, events_of(seed)) for seed in SEEDS}
    yield models
    for model in models.values():
        model.drop()


def ask_everything(connection: Connection, as_of: int | None) -> list[Any]:
    questions: list[Callable[..., Any]] = [success_by_version, list_policies, throughput]
    answers = [ask(connection, as_of=as_of) for ask in questions]
    rows = list_episodes(connection, as_of=as_of, limit=1000)
    answers += [rows, list_episodes(connection, as_of=as_of, limit=3, state="ended", outcome="success")]
    answers += [list_tasks(connection, as_of=as_of, limit=1000)]
    answers += [show_episode(connection, row.episode, as_of=as_of) for row in rows[:3]]
    answers += [success_by_version(connection, as_of=as_of, origin=None, judge="second")]
    return [*answers, run_summary(connection, as_of=as_of)]


@settings(max_examples=12, deadline=None)
@given(seed=st.sampled_from(SEEDS), share=st.floats(0, 1))
def test_as_of_a_position_equals_a_fold_that_stops_there(
    whole: Any, place: Callable[[], ReadModel], seed: int, share: float
) -> None:
    recordeds = events_of(seed)
    position = max(1, round(share * len(recordeds)))
    prefix = folded(place, recordeds[:position])
    with whole[seed].reading() as long, prefix.reading() as short:
        assert b"".join(dump(long, as_of=position)) == b"".join(dump(short))
        assert digests(long, as_of=position) == digests(short)
        assert ask_everything(long, position) == ask_everything(short, None)
    prefix.drop()


@settings(max_examples=12, deadline=None)
@given(seed=st.sampled_from(SEEDS), cuts=st.lists(st.integers(0, 120), max_size=8))
def test_however_the_log_is_cut_into_transactions_the_rows_are_the_same(
    whole: Any, place: Callable[[], ReadModel], seed: int, cuts: list[int]
) -> None:
    pieces = folded(place, events_of(seed), cuts=cuts)
    with whole[seed].reading() as one, pieces.reading() as other:
        assert b"".join(dump(one)) == b"".join(dump(other))
        assert read_cursor(one) == read_cursor(other)
    pieces.drop()
