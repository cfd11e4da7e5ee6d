"""A place means the same position to the read model as to the log that it was folded from."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection

from hindcast.core.errors import NoSuchPlace
from hindcast.events.envelope import Recorded
from hindcast.events.log import places
from hindcast.events.log.places import END, Place, parse_place
from hindcast.events.log.port import EventLog
from hindcast.storage.readmodel.database import ReadModel
from hindcast.storage.readmodel.fold import apply
from hindcast.storage.readmodel.query_parts import NotInReadModel, position_of_place
from stories.synthetic_run import recorded_run

NOUNS = ("update", "batch", "policy", "checkpoint")


@cache
def a_run(seed: int) -> tuple[EventLog, list[Recorded]]:
    return asyncio.run(recorded_run(seed, groups=10))


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], Connection]]:
    """The read model of the run of a seed."""
    folder = tmp_path_factory.mktemp("places")
    connections: dict[int, Connection] = {}
    with ExitStack() as stack:

        def ask(seed: int) -> Connection:
            if seed not in connections:
                model = ReadModel(f"sqlite:///{folder}/{seed}.sqlite", run="tale")
                stack.callback(model.close)
                model.prepare()
                with model.writing() as connection:
                    apply(connection, a_run(seed)[1])
                connections[seed] = stack.enter_context(model.reading())
            return connections[seed]

        yield ask


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.sampled_from((1, 2, 4)),
    noun=st.sampled_from(NOUNS),
    number=st.one_of(st.none(), st.integers(0, 12)),
)
@example(seed=4, noun="batch", number=None)
@example(seed=4, noun="policy", number=0)
def test_a_place_is_the_same_position_in_the_log_and_in_the_read_model(
    asked: Callable[[int], Connection], seed: int, noun: places.Noun, number: int | None
) -> None:
    place = Place(noun, number)
    try:
        expected: int | None = asyncio.run(places.position_of(a_run(seed)[0], place))
    except NoSuchPlace:
        expected = None
    if expected is None and place == Place("policy", 0):
        expected = 1  # the read model knows the base policy from the run's first event on
    try:
        found: int | None = position_of_place(asked(seed), place)
    except NoSuchPlace:
        found = None
    assert found == expected


def test_the_end_is_where_the_read_model_stands(asked: Callable[[int], Connection]) -> None:
    assert position_of_place(asked(1), END) == len(a_run(1)[1])
    assert position_of_place(asked(1), parse_place("7")) == 7


def test_a_place_that_is_not_there_says_which_are(asked: Callable[[int], Connection]) -> None:
    with pytest.raises(NoSuchPlace, match=r"no update=99 as of position \d+: there are 1 to \d+\."):
        position_of_place(asked(1), parse_place("update=99"))
    with pytest.raises(NotInReadModel, match="knows positions 0 to"):
        position_of_place(asked(1), parse_place("99999"))


def test_a_run_that_has_not_trained_yet_has_no_such_place(tmp_path: Path) -> None:
    model = ReadModel(f"sqlite:///{tmp_path}/young.sqlite", run="tale")
    model.prepare()
    with model.writing() as connection:
        apply(connection, a_run(1)[1][:3])
    with (
        model.reading() as connection,
        pytest.raises(NoSuchPlace, match=r"no checkpoint=last .*: there is none yet"),
    ):
        position_of_place(connection, parse_place("checkpoint=last"))
    model.close()
