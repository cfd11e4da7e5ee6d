"""Places in a log, as people name them."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hindcast.core.errors import NoSuchPlace
from hindcast.events.catalogue import BatchPlanned, CheckpointSaved, UpdateApplied, WeightsPublished
from hindcast.events.envelope import Recorded, Stored
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.places import END, Landmarks, Place, parse_place, position_of
from stories.synthetic_run import recorded_run


async def told() -> tuple[MemoryLog, list[Recorded]]:
    return await recorded_run(1, groups=12)


def first(recordeds: list[Recorded], kind: type, **fields: object) -> int:
    return next(
        recorded.position
        for recorded in recordeds
        if isinstance(recorded.fact, kind)
        and all(getattr(recorded.fact, name) == value for name, value in fields.items())
    )


async def find(log: MemoryLog, text: str) -> int:
    return await position_of(log, parse_place(text))


@given(
    noun=st.sampled_from(["position", "update", "batch", "policy", "checkpoint"]),
    number=st.one_of(st.none(), st.integers(0, 10**18 - 1)),
)
def test_a_place_is_read_back_from_its_own_words(noun: str, number: int | None) -> None:
    place = Place(noun, number)  # type: ignore[arg-type]
    assert parse_place(str(place)) == place


@given(st.text(max_size=20))
def test_whatever_follows_no_rule_is_refused_with_the_rules(text: str) -> None:
    with suppress(NoSuchPlace):
        place = parse_place(text)
        assert text in ("end", str(place)) or place == Place("position", int(text))


@pytest.mark.parametrize(
    "text", ["", "last", "update", "update=", "update=-1", "updates=3", "3.5", "update=3 "]
)
def test_near_misses_are_no_places(text: str) -> None:
    with pytest.raises(NoSuchPlace, match=r"is no place.*update=N"):
        parse_place(text)


async def test_every_kind_of_place_is_where_its_event_stands() -> None:
    log, recordeds = await told()
    updates = [r.fact.update for r in recordeds if isinstance(r.fact, UpdateApplied)]
    saved = next(r for r in recordeds if isinstance(r.fact, CheckpointSaved))
    assert await find(log, "17") == await find(log, "position=17") == 17
    assert await find(log, "end") == await position_of(log, END) == len(recordeds)
    assert await find(log, f"update={updates[0]}") == first(recordeds, UpdateApplied, update=updates[0])
    assert await find(log, "update=last") == first(recordeds, UpdateApplied, update=max(updates))
    assert await find(log, f"checkpoint={saved.fact.update}") == saved.position  # type: ignore[attr-defined]
    assert await find(log, "policy=1") == first(recordeds, WeightsPublished, version=1)
    closing = await find(log, "batch=0")
    assert isinstance(recordeds[closing - 1].fact, WeightsPublished)
    assert first(recordeds, BatchPlanned, batch=0) < closing < first(recordeds, BatchPlanned, batch=1)


async def test_what_is_not_there_is_refused_with_what_is() -> None:
    log, recordeds = await told()
    last = max(r.fact.update for r in recordeds if isinstance(r.fact, UpdateApplied))
    with pytest.raises(NoSuchPlace, match=f"no update=999: there are 1 to {last}"):
        await find(log, "update=999")
    for wrong in ("0", str(len(recordeds) + 1)):
        with pytest.raises(NoSuchPlace, match=f"goes from 1 to {len(recordeds)}"):
            await find(log, wrong)
    with pytest.raises(NoSuchPlace, match="there is none yet"):
        Landmarks().find(Place("update", None))
    only_one = Landmarks({"update": {7: 12}})
    with pytest.raises(NoSuchPlace, match="no update=8: there is only 7"):
        only_one.find(Place("update", 8))


async def test_a_batch_whose_weights_are_not_published_is_not_closed() -> None:
    _, recordeds = await told()
    planned = first(recordeds, BatchPlanned, batch=0)
    landmarks = Landmarks()
    for recorded in recordeds[:planned]:
        landmarks.take(recorded.position, recorded.fact)
    with pytest.raises(NoSuchPlace):
        landmarks.find(Place("batch", 0))


async def test_a_damaged_event_hides_no_other_place() -> None:
    log, recordeds = await told()
    wanted = await find(log, "update=last")
    planned = first(recordeds, BatchPlanned, batch=0)
    old = log.events[planned - 1]
    log.events[planned - 1] = Stored(planned, old.subject, old.data[:-3], old.id)
    assert await find(log, "update=last") == wanted
