"""From facts to rows: total over the catalogue, pure, safe against what pages and policies write."""

import msgspec
import pytest
from sqlalchemy import select

from hindcast.core.domain.action import Action
from hindcast.core.ids import digest_hex
from hindcast.events.envelope import Envelope, Fact, Recorded
from hindcast.events.registry import BY_CLASS
from hindcast.storage.readmodel.database import ReadModel
from hindcast.storage.readmodel.fold import apply
from hindcast.storage.readmodel.mapping import MAPPERS, operations
from hindcast.storage.readmodel.row_operations import Insert, InsertMany
from hindcast.storage.readmodel.tables import TABLES, steps
from stories.synthetic_run import Tale, a_run, recorded_run


def recorded(fact: Fact, position: int = 1, run: str = "tale") -> Recorded:
    entry = BY_CLASS[type(fact)]
    envelope = Envelope(
        id=f"{position}",
        type=entry.name,
        version=entry.version,
        run=run,
        entity="e",
        ordinal=0,
        causation=None,
        correlation=None,
        producer="p",
        incarnation="p-1",
        producer_seq=position - 1,
        prev_hash=b"",
        occurred_ns=position,
        policy_version=None,
        code_rev="test",
        payload=msgspec.Raw(b"\x80"),
    )
    return Recorded(position, envelope, fact, bytes(32))


def test_the_synthetic_run_tells_every_fact_that_has_a_mapper() -> None:
    assert set(MAPPERS) - {type(told.fact) for told in a_run(1, groups=6)} == set()


async def test_every_fact_leaves_a_trace_in_some_row() -> None:
    _, recordeds = await recorded_run(1, groups=6)
    silent = {one.envelope.type for one in recordeds if not list(operations(one))}
    assert silent == set()


async def test_rows_name_only_columns_of_their_tables() -> None:
    _, recordeds = await recorded_run(1, groups=6)
    for one in recordeds:
        for operation in operations(one):
            many = isinstance(operation, InsertMany)
            named = [*operation.shared, *operation.columns] if many else [*operation.values]
            unknown = set(named) - set(TABLES[operation.table].c.keys())
            assert not unknown, f"{one.envelope.type} -> {operation.table}"


async def test_mapping_the_same_event_twice_gives_the_same_rows() -> None:
    _, recordeds = await recorded_run(1, groups=4)
    for one in recordeds:
        assert list(operations(one)) == list(operations(one))


def test_a_fact_of_no_known_kind_changes_nothing() -> None:
    class Unheard(Fact, frozen=True, kw_only=True):
        pass

    known = recorded(a_run(1)[0].fact)
    assert list(operations(Recorded(1, known.envelope, Unheard(), bytes(32)))) == []


def test_a_batch_names_the_mini_batch_and_the_episode_of_every_sample() -> None:
    planned = next(told.fact for told in a_run(1) if BY_CLASS[type(told.fact)].name == "batch.planned")
    (samples,) = [o.columns for o in operations(recorded(planned)) if isinstance(o, InsertMany)]
    sizes = [sum(1 for minibatch in samples["minibatch"] if minibatch == m) for m in (0, 1)]
    assert msgspec.convert(list(memoryview(planned.minibatches).cast("i")), list[int]) == sizes
    assert samples["place"] == [*range(sizes[0]), *range(sizes[1])]
    assert samples["episode"] == [part.episode for part in planned.episodes for _ in range(part.samples)]
    assert len({len(column) for column in samples.values()}) == 1


def test_a_plan_whose_counts_do_not_add_up_is_shown_as_far_as_it_goes() -> None:
    planned = next(told.fact for told in a_run(1) if BY_CLASS[type(told.fact)].name == "batch.planned")
    short = msgspec.structs.replace(planned, minibatches=planned.minibatches[:4], episodes=())
    (samples,) = [o.columns for o in operations(recorded(short)) if isinstance(o, InsertMany)]
    assert samples["minibatch"][-1] is None
    assert set(samples["episode"]) == {None}
    assert len(samples["place"]) == len(planned.positions) // 8


@pytest.mark.parametrize(
    ("action", "element", "argument"),
    [
        (Action(name="Click", element=2**64 - 1), None, None),
        (Action(name="Type", element=7, argument="a\x00b"), 7, "a�b"),
    ],
)
def test_what_a_policy_writes_never_stops_the_projector(
    url: str, action: Action, element: int | None, argument: str | None
) -> None:
    step = Tale(1, groups=1, group_size=1, run="tale")._step("ep_1", 0, last=False)
    hostile = msgspec.structs.replace(step, action=action, world_ordinal=2**64 - 1, url="http://\x00/")
    model = ReadModel(url, run="tale")
    model.prepare()
    with model.writing() as connection:
        apply(connection, [recorded(hostile)])
    with model.reading() as connection:
        row = connection.execute(select(steps)).mappings().one()
    model.close()
    assert (row["element"], row["argument"], row["world_ordinal"], row["url"]) == (
        element,
        argument,
        None,
        "http://�/",
    )


def test_numbers_that_are_not_finite_are_kept_as_nothing() -> None:
    applied = next(told.fact for told in a_run(1) if BY_CLASS[type(told.fact)].name == "update.applied")
    update, samples = operations(recorded(applied))
    assert isinstance(update, Insert)
    assert isinstance(samples, InsertMany)
    assert update.values["metrics"] == '{"entropy":null,"loss":0.25}'
    assert samples.columns["ratio"][:2] == [None, 1.0]
    assert update.values["after"] == digest_hex(b"1")
