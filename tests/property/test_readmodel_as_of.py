"""As of position N, the read model of a longer log answers what one that stops at N answers."""

import asyncio
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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


def folded(path: Any, recordeds: list[Recorded], *, cuts: list[int] | None = None) -> ReadModel:
    model = ReadModel(f"sqlite:///{path}", run="tale")
    model.prepare()
    start = 0
    for end in [*sorted(set(cuts or [])), len(recordeds)]:
        with model.writing() as connection:
            apply(connection, recordeds[start:end])
        start = end
    return model


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("whole")
    models = {seed: folded(folder / f"{seed}.sqlite", events_of(seed)) for seed in SEEDS}
    yield models
    for model in models.values():
        model.close()


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
    whole: Any, tmp_path_factory: pytest.TempPathFactory, seed: int, share: float
) -> None:
    recordeds = events_of(seed)
    position = max(1, round(share * len(recordeds)))
    prefix = folded(tmp_path_factory.mktemp("prefix") / "r.sqlite", recordeds[:position])
    with whole[seed].reading() as long, prefix.reading() as short:
        assert b"".join(dump(long, as_of=position)) == b"".join(dump(short))
        assert digests(long, as_of=position) == digests(short)
        assert ask_everything(long, position) == ask_everything(short, None)
    prefix.close()


@settings(max_examples=12, deadline=None)
@given(seed=st.sampled_from(SEEDS), cuts=st.lists(st.integers(0, 120), max_size=8))
def test_however_the_log_is_cut_into_transactions_the_rows_are_the_same(
    whole: Any, tmp_path_factory: pytest.TempPathFactory, seed: int, cuts: list[int]
) -> None:
    pieces = folded(tmp_path_factory.mktemp("pieces") / "r.sqlite", events_of(seed), cuts=cuts)
    with whole[seed].reading() as one, pieces.reading() as other:
        assert b"".join(dump(one)) == b"".join(dump(other))
        assert read_cursor(one) == read_cursor(other)
    pieces.close()
