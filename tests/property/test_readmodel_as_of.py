"""As of position N, the read model of a longer log answers what one that stops at N answers."""

import asyncio
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, Table, select

import hindcast.storage.readmodel
from hindcast.events.envelope import Recorded
from hindcast.storage.readmodel import block_sums, metrics
from hindcast.storage.readmodel.comparison import newest_version_and_update
from hindcast.storage.readmodel.database import ReadModel
from hindcast.storage.readmodel.episode_counts import count_episodes, count_states
from hindcast.storage.readmodel.episode_queries import (
    EpisodeFilter,
    Narrowing,
    branch_outcomes,
    count_requested,
    list_episodes,
    matching_episodes,
    mentioning,
    screenshots_of,
    show_episode,
    step_advantages,
    verdicts_of,
)
from hindcast.storage.readmodel.evaluation_queries import changes_by_family, list_evaluations
from hindcast.storage.readmodel.family_queries import (
    FamilyEpisodes,
    count_played_tasks,
    failure_reasons,
    family_training,
)
from hindcast.storage.readmodel.fold import apply, read_cursor
from hindcast.storage.readmodel.lineage.lineage import lineage
from hindcast.storage.readmodel.lineage.nodes import FINDERS
from hindcast.storage.readmodel.metrics import throughput, update_metrics
from hindcast.storage.readmodel.outcome_counts import success_by_version, training_tallies
from hindcast.storage.readmodel.query_parts import holding, position_of, training_judge
from hindcast.storage.readmodel.queue_queries import queue_waits
from hindcast.storage.readmodel.rebuild import digests, dump
from hindcast.storage.readmodel.run_queries import list_policies, recipe_changes, run_status, run_summary
from hindcast.storage.readmodel.tables import batches, episodes, steps, tasks, updates, weights
from hindcast.storage.readmodel.task_queries import list_phases, list_tasks, newest_attempts
from servers.postgres_server import LivePostgres
from stories.synthetic_run import SECOND_NS, recorded_run

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


@pytest.fixture(scope="module", autouse=True)
def short_blocks() -> Iterator[None]:
    """So short that these logs have many, and metrics are told by them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_sums, "BLOCK", 16)
        patch.setattr(metrics, "ONE_BY_ONE", 1)
        yield


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
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


def ids_of(connection: Connection, as_of: int | None, table: Table, *columns: str) -> list[tuple[Any, ...]]:
    """Of a few rows that hold, spread over all of them."""
    statement = select(*(table.c[name] for name in columns)).where(
        holding(table, position_of(connection, as_of))
    )
    rows = [tuple(row) for row in connection.execute(statement.order_by(*table.primary_key))]
    return rows[:: max(1, len(rows) // 3)]


def ask_episodes(connection: Connection, as_of: int | None) -> Any:
    some = list_episodes(connection, as_of=as_of, limit=3, state="ended", outcome="success")
    begun = list_episodes(connection, as_of=as_of, limit=50, begun=True)
    said = list_episodes(
        connection,
        as_of=as_of,
        limit=50,
        narrow=Narrowing(among=mentioning(connection, "click", as_of=as_of)),
    )
    return [list_episodes(connection, as_of=as_of, limit=1000), some, begun, said]


def ask_an_episode(connection: Connection, as_of: int | None) -> Any:
    named = ids_of(connection, as_of, episodes, "episode")
    return [show_episode(connection, episode, as_of=as_of) for (episode,) in named]


def ask_screenshots(connection: Connection, as_of: int | None) -> Any:
    named = ids_of(connection, as_of, episodes, "episode")
    position = position_of(connection, as_of)
    return [screenshots_of(connection, episode, position) for (episode,) in named]


def ask_curves(connection: Connection, as_of: int | None) -> Any:
    other = success_by_version(connection, as_of=as_of, origin=None, judge="second")
    return [success_by_version(connection, as_of=as_of), other]


def ask_lineage(connection: Connection, as_of: int | None) -> Any:
    """Of every kind, as deep as it goes and with every entry."""
    names = {
        "step": [f"{position}" for (position,) in ids_of(connection, as_of, steps, "position")],
        "episode": [episode for (episode,) in ids_of(connection, as_of, episodes, "episode")],
        "batch": [f"{batch}" for (batch,) in ids_of(connection, as_of, batches, "batch")],
        "update": [f"{number}" for (number,) in ids_of(connection, as_of, updates, "update_number")],
        "task": [task for (task,) in ids_of(connection, as_of, tasks, "task")],
        "policy": [f"{version}" for (version,) in ids_of(connection, as_of, weights, "version")],
    }
    assert set(names) == set(FINDERS)
    return [
        lineage(connection, kind, name, as_of=as_of, depth=5, limit=None)
        for kind, listed in names.items()
        for name in listed
    ]


QUESTIONS: dict[str, Callable[[Connection, int | None], Any]] = {
    "training_judge": lambda connection, as_of: training_judge(connection, as_of=as_of),
    "screenshots_of": ask_screenshots,
    "success_by_version": ask_curves,
    "training_tallies": lambda connection, as_of: training_tallies(connection, as_of=as_of),
    "list_episodes": ask_episodes,
    "count_requested": lambda connection, as_of: count_requested(connection, as_of=as_of),
    "count_episodes": lambda connection, as_of: [
        count_episodes(connection, as_of=as_of, narrow=narrow)
        for narrow in (Narrowing(), Narrowing(version=0, last_version=1))
    ],
    "mentioning": lambda connection, as_of: mentioning(connection, "click", as_of=as_of),
    "branch_outcomes": lambda connection, as_of: [
        branch_outcomes(connection, episode, as_of=as_of)
        for (episode,) in ids_of(connection, as_of, episodes, "episode")
    ],
    "show_episode": ask_an_episode,
    "list_tasks": lambda connection, as_of: list_tasks(connection, as_of=as_of, limit=1000),
    "list_phases": lambda connection, as_of: list_phases(connection, as_of=as_of),
    "list_policies": lambda connection, as_of: list_policies(connection, as_of=as_of),
    "throughput": lambda connection, as_of: throughput(connection, as_of=as_of),
    "update_metrics": lambda connection, as_of: update_metrics(connection, as_of=as_of),
    "recipe_changes": lambda connection, as_of: recipe_changes(connection, as_of=as_of),
    "matching_episodes": lambda connection, as_of: list(
        matching_episodes(connection, EpisodeFilter(outcome="success"), as_of=as_of)
    ),
    "step_advantages": lambda connection, as_of: [
        step_advantages(connection, episode, as_of=as_of)
        for (episode,) in ids_of(connection, as_of, episodes, "episode")
    ],
    "verdicts_of": lambda connection, as_of: [
        verdicts_of(connection, episode, as_of=as_of)
        for (episode,) in ids_of(connection, as_of, episodes, "episode")
    ],
    "list_evaluations": lambda connection, as_of: [
        list_evaluations(connection, as_of=as_of, family=family) for family in (None, "store/find_price")
    ],
    "changes_by_family": lambda connection, as_of: changes_by_family(connection, as_of=as_of),
    "newest_version_and_update": lambda connection, as_of: newest_version_and_update(connection, as_of=as_of),
    "run_summary": lambda connection, as_of: run_summary(connection, as_of=as_of),
    "run_status": lambda connection, as_of: run_status(connection, as_of=as_of),
    "family_training": lambda connection, as_of: [
        family_training(
            connection, "store", "find_price", first_version=first, last_version=last, as_of=as_of
        )
        for first, last in ((0, 2), (1, 100))
    ],
    "failure_reasons": lambda connection, as_of: failure_reasons(
        connection, FamilyEpisodes("store", "find_price", "online", 0, 100), as_of=as_of
    ),
    "count_played_tasks": lambda connection, as_of: count_played_tasks(
        connection, FamilyEpisodes("store", "find_price", "online", 0, 100), as_of=as_of
    ),
    "count_states": lambda connection, as_of: count_states(connection, as_of=as_of),
    "lineage": ask_lineage,
    "newest_attempts": lambda connection, as_of: [
        newest_attempts(connection, after=after, limit=limit, as_of=as_of)
        for after, limit in ((0, 1000), (40, 5))
    ],
    "queue_waits": lambda connection, as_of: [
        queue_waits(connection, since_ns=at, until_ns=at + 20 * SECOND_NS, as_of=as_of)
        for (at,) in ids_of(connection, as_of, steps, "occurred_ns")
    ],
}
"""Every question to the read model, by its name."""

ASKED_ELSEWHERE = {"compare_runs", "refuse_unknown", "position_of", "dump_table", "dump", "digests"}
"""Questions about two logs, whose positions are not each other's; refusals of names; the dump, which is compared below."""
QUERIES = {
    "comparison",
    "episode_counts",
    "episode_queries",
    "evaluation_queries",
    "metrics",
    "run_queries",
    "task_queries",
    "lineage.lineage",
}
"""Modules whose public functions on a connection are all questions; others have parts of them."""


def questions_of_the_package() -> set[str]:
    """Public functions that take a connection first, and a position to ask as of or stand among the queries."""
    found = set()
    for info in pkgutil.walk_packages(hindcast.storage.readmodel.__path__, "hindcast.storage.readmodel."):
        module = importlib.import_module(info.name)
        queries = info.name.removeprefix("hindcast.storage.readmodel.") in QUERIES
        for name, one in inspect.getmembers(module, inspect.isfunction):
            parameters = inspect.signature(one).parameters
            first = next(iter(parameters.values()), None)
            asks = first is not None and first.annotation is Connection and ("as_of" in parameters or queries)
            if asks and one.__module__ == info.name and not name.startswith("_"):
                found.add(name)
    return found


def test_every_question_to_the_read_model_is_asked_as_of_positions_here() -> None:
    assert questions_of_the_package() - ASKED_ELSEWHERE == set(QUESTIONS)


def ask_everything(connection: Connection, as_of: int | None) -> dict[str, Any]:
    """A question leaves the connection as it was: an option set on it would change how all later ones are read."""
    options = dict(connection.get_execution_options())
    answers = {name: ask(connection, as_of) for name, ask in QUESTIONS.items()}
    assert connection.get_execution_options() == options
    return answers


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
        before, then = ask_everything(long, position), ask_everything(short, None)
        for name in QUESTIONS:
            assert before[name] == then[name], name
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
