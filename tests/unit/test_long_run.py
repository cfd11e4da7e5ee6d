"""The long run that questions are measured on, and how its read model is asked: by index, however long it grows."""

import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from sqlalchemy import Connection, event

from bench.long_run import RUN, LongRun, fill_with_long_run, long_run_events
from hindcast.core.domain.arrays import unpack_ids, unpack_positions
from hindcast.events.catalogue import BatchPlanned, StepTaken, TaskProposed, UpdateApplied
from hindcast.storage.readmodel.database import ReadModel
from hindcast.storage.readmodel.episode_queries import list_episodes, show_episode
from hindcast.storage.readmodel.fold import read_cursor
from hindcast.storage.readmodel.lineage.lineage import lineage
from hindcast.storage.readmodel.run_queries import run_summary
from hindcast.storage.readmodel.task_queries import list_tasks

EVENTS = 2500
GROWING = {
    "steps",
    "episodes",
    "verdicts",
    "batch_episodes",
    "batch_samples",
    "update_samples",
    "token_versions",
    "judged",
}
"""Tables with rows by the thousand."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReadModel]:
    made = ReadModel(f"sqlite:///{tmp_path_factory.mktemp('long')}/model.sqlite", run=RUN)
    fill_with_long_run(made, EVENTS)
    yield made
    made.close()


def test_the_long_run_is_the_same_each_time_and_another_for_another_seed() -> None:
    first = [said.fact for said in islice(LongRun(1).tell(), 500)]
    assert first == [said.fact for said in islice(LongRun(1).tell(), 500)]
    assert first != [said.fact for said in islice(LongRun(2).tell(), 500)]


def test_its_plans_name_steps_and_its_updates_go_through_them() -> None:
    recordeds = {one.position: one.fact for one in long_run_events(EVENTS)}
    plans = [fact for fact in recordeds.values() if isinstance(fact, BatchPlanned)]
    assert len(plans) > 3
    for plan in plans:
        steps = [recordeds[position] for position in unpack_positions(plan.positions).tolist()]
        assert all(isinstance(step, StepTaken) for step in steps)
        assert sum(unpack_ids(plan.minibatches).tolist()) == len(steps)
        mine = [f for f in recordeds.values() if isinstance(f, UpdateApplied) and f.batch == plan.batch]
        assert [len(f.samples.weights) // 4 for f in mine] == unpack_ids(plan.minibatches).tolist()[
            : len(mine)
        ]


def test_it_has_what_makes_lineage_hard_to_answer() -> None:
    told = [one.fact for one in long_run_events(EVENTS)]
    spliced = [f for f in told if isinstance(f, StepTaken) and len(set(unpack_ids(f.versions).tolist())) > 1]
    derived = [f for f in told if isinstance(f, TaskProposed) and f.parents]
    assert spliced
    assert derived


def test_it_is_folded_up_to_the_number_asked_for_and_anew_when_asked_again(tmp_path: Path) -> None:
    model = ReadModel(f"sqlite:///{tmp_path}/model.sqlite", run=RUN)
    for events in (700, 300):
        fill_with_long_run(model, events)
        with model.reading() as connection:
            standing = read_cursor(connection)
            assert standing is not None
            assert standing.position == events == run_summary(connection).position
    model.close()


def plans_of(connection: Connection, ask: object) -> Counter[str]:
    """How a question reads the growing tables: each line of every query plan that names one of them."""
    lines: Counter[str] = Counter()

    def explain(_c: object, cursor: object, statement: str, parameters: object, *_: object) -> None:
        raw = connection.connection.cursor()
        raw.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
        aliases = dict(re.findall(r"(\w+) AS (earlier|verdicts_\d+|steps_\d+)\b", statement))
        for *_ids, line in raw.fetchall():
            named = re.match(r"(SCAN|SEARCH) (\w+)", line)
            table = named and aliases.get(named[2], named[2])
            if table in GROWING or (table == "earlier"):
                lines[line] += 1

    event.listen(connection, "before_cursor_execute", explain)
    try:
        ask()  # type: ignore[operator]
    finally:
        event.remove(connection, "before_cursor_execute", explain)
    return lines


def test_lineage_reads_no_growing_table_from_end_to_end(model: ReadModel) -> None:
    with model.reading() as connection:
        episode = list_episodes(connection, state="ended", limit=1)[0]
        names = {"policy": "2", "update": "6", "batch": "1", "episode": episode.episode}
        names |= {"step": f"{episode.episode}/0", "task": f"{episode.task}"}
        for kind, name in names.items():
            lines = plans_of(connection, lambda kind=kind, name=name: lineage(connection, kind, name))
            assert lines
            assert not [line for line in lines if line.startswith("SCAN")], (kind, lines)
            showing = plans_of(connection, lambda: show_episode(connection, episode.episode))
            assert not [line for line in showing if line.startswith("SCAN")]


def test_episodes_are_read_in_their_order_and_verdicts_looked_up_for_each(model: ReadModel) -> None:
    """A table of fifty once read and sorted every episode there is."""
    with model.reading() as connection:
        for asked in ({}, {"outcome": "success"}, {"state": "ended"}):
            lines = plans_of(connection, lambda asked=asked: list_episodes(connection, **asked))
            assert any("episodes USING INDEX episodes_requested_position" in line for line in lines), lines
            assert any(line.startswith("SEARCH judged USING") for line in lines), lines


def test_what_verdicts_come_to_is_counted_over_an_index_alone(model: ReadModel) -> None:
    with model.reading() as connection:
        for ask in (run_summary, list_tasks):
            lines = plans_of(connection, lambda ask=ask: ask(connection))
            judged = [line for line in lines if "judged" in line and "sqlite_autoindex" not in line]
            assert judged or ask is run_summary, ask
            assert all("COVERING INDEX" in line for line in judged), judged
            assert not [line for line in lines if "episodes" in line and "INDEX" not in line], lines
