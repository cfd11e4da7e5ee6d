"""Sums over blocks of the log: they say exactly what the rows say, as of every position."""

import json
from collections import Counter
from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, func, select

from bench.long_run import RUN, fill_with_long_run
from hindcast.storage.readmodel import block_sums, metrics
from hindcast.storage.readmodel.database import ReadModel
from hindcast.storage.readmodel.episode_counts import count_states
from hindcast.storage.readmodel.metrics import update_metrics
from hindcast.storage.readmodel.outcome_counts import success_by_version, tallies
from hindcast.storage.readmodel.query_parts import holding
from hindcast.storage.readmodel.run_queries import list_policies
from hindcast.storage.readmodel.tables import block_counts, episodes, judged, notices, steps, updates

EVENTS = 2500
BLOCK = 256
AS_OF = (1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 1777, EVENTS)
JUDGE = "rules"


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_sums, "BLOCK", BLOCK)
        patch.setattr(metrics, "ONE_BY_ONE", 1)
        model = ReadModel(f"sqlite:///{tmp_path_factory.mktemp('blocks')}/model.sqlite", run=RUN)
        fill_with_long_run(model, EVENTS)
        with model.reading() as connection:
            yield connection
        model.close()


def test_a_block_is_added_up_once_it_is_over_and_no_earlier(asked: Connection) -> None:
    written = asked.scalars(select(block_counts.c.position).distinct().order_by(block_counts.c.position))
    assert list(written) == list(range(BLOCK, EVENTS + 1, BLOCK))
    assert [block_sums.ended_by(position) for position in (0, BLOCK - 1, BLOCK, BLOCK + 1)] == [
        0,
        0,
        BLOCK,
        BLOCK,
    ]


@pytest.mark.parametrize("position", AS_OF)
def test_counts_are_those_of_the_rows(asked: Connection, position: int) -> None:
    counted = block_sums.totals(asked, position)
    taken = asked.scalar(select(func.count()).where(steps.c.position <= position))
    told = select(notices.c.type, func.count()).where(notices.c.position <= position).group_by(notices.c.type)
    assert counted == {
        ("steps", ""): taken,
        **{("notices", kind): number for kind, number in asked.execute(told)},
    }


@pytest.mark.parametrize("position", AS_OF)
def test_states_are_those_of_the_episodes(asked: Connection, position: int) -> None:
    held = select(episodes.c.state, func.count()).where(holding(episodes, position))
    assert count_states(asked, as_of=position) == dict(asked.execute(held.group_by(episodes.c.state)).all())


@pytest.mark.parametrize("position", AS_OF)
def test_tallies_are_those_of_the_verdicts(asked: Connection, position: int) -> None:
    said = select(judged).where(judged.c.judge == JUDGE, judged.c.valid_from <= position)
    expected: dict[tuple[object, ...], Counter[str]] = {}
    for row in asked.execute(said):
        counts = expected.setdefault((row.version_low, row.origin, row.environment, row.family), Counter())
        counts[row.outcome] += 1
        counts["reward"] += row.reward
        counts["mixed"] += row.version_low != row.version_high
    found = tallies(asked, position, JUDGE)
    assert {tuple(one[:4]): tuple(one[4:]) for one in found} == {
        kind: tuple(counts[name] for name in ("success", "failure", "undecided", "reward", "mixed"))
        for kind, counts in expected.items()
    }
    assert [one[1::-1] for one in found] == sorted(one[1::-1] for one in found)


@pytest.mark.parametrize("position", AS_OF)
def test_metrics_keep_the_lowest_the_highest_and_the_last_value_of_every_stretch(
    asked: Connection, position: int
) -> None:
    told = select(updates.c.update_number, updates.c.metrics).where(updates.c.position <= position)
    values = dict(asked.execute(told.order_by(updates.c.position)).all())
    found = update_metrics(asked, as_of=position, names=("loss", "kl"))
    assert set(found) == ({"loss", "kl"} if values else set())
    for name, columns in found.items():
        assert sum(column.updates for column in columns) == len(values)
        for column in columns:
            within = [json.loads(values[number])[name] for number in range(column.first, column.last + 1)]
            assert (column.updates, column.low, column.high) == (len(within), min(within), max(within))
            assert column.value == within[-1]
        assert len(columns) < len(values) or position < 2 * BLOCK


def test_policies_are_paged_through_and_none_is_left_out(asked: Connection) -> None:
    whole = list_policies(asked)
    curve = {point.version: point.success for point in success_by_version(asked)}
    assert [row.success for row in whole if row.success.judged] == [
        curve[row.version] for row in whole if row.version in curve
    ]
    paged, before = [], None
    while page := list_policies(asked, before=before, limit=3):
        paged += page
        before = page[-1].version
    assert paged == whole
    assert len(whole) > 3
