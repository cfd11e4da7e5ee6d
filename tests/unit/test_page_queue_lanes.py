"""The timeline's lanes of queues, against numbers worked out by hand."""

from random import Random
from xml.etree import ElementTree

import pytest

from hindcast.app.page.views.queue_lanes import (
    COLUMNS,
    SECOND_NS,
    TALL,
    QueueLane,
    drawn,
    lane_of,
    queues_in_words,
)
from hindcast.storage.readmodel.queue_queries import Wait

BEGIN = 1_700_000_000 * SECOND_NS


def lane(name: str, *waits: tuple[float, float | None]) -> QueueLane:
    """The lane of a stretch of 24 seconds; waits in seconds from its beginning."""
    return lane_of(
        name,
        [
            Wait(BEGIN + int(entered * SECOND_NS), None if left is None else BEGIN + int(left * SECOND_NS))
            for entered, left in waits
        ],
        since_ns=BEGIN,
        until_ns=BEGIN + 24 * SECOND_NS,
    )


def test_a_lane_counts_what_waits_at_once_over_the_stretch() -> None:
    found = lane("to judge", (-5, 6), (3, 9), (12, None))
    assert [(one.begin_s, one.end_s, one.most) for one in found.columns] == [
        pytest.approx(part) for part in ((0, 3, 1), (3, 6, 2), (6, 9, 1), (12, 24, 1))
    ]
    assert (found.first, found.last, found.most) == (1, 1, 2)
    assert found.average == pytest.approx((6 + 6 + 12) / 24)


def test_a_lane_has_what_counting_at_every_moment_finds() -> None:
    random = Random(7)
    bar_ns = SECOND_NS // 10
    for _ in range(40):
        spans = [
            (at, random.choice([None, at + random.randint(0, 90)]))
            for at in random.choices(range(-40, 241), k=20)
        ]
        spans = [(at, left) for at, left in spans if left is None or left > 0]

        def waiting(place: int, spans: list[tuple[int, int | None]] = spans) -> int:
            return sum(at <= place and (left is None or left > place) for at, left in spans)

        waits = [
            Wait(BEGIN + at * bar_ns, None if left is None else BEGIN + left * bar_ns) for at, left in spans
        ]
        found = lane_of("to train", waits, since_ns=BEGIN, until_ns=BEGIN + COLUMNS * bar_ns)
        counted = [waiting(place) for place in range(COLUMNS)]
        assert (found.first, found.last) == (counted[0], waiting(COLUMNS) + _left_at(COLUMNS, spans))
        assert found.average == pytest.approx(sum(counted) / COLUMNS)
        counted[-1] = max(counted[-1], found.last)  # what begins at the very end is in the last bar
        drawn_bars = [0] * COLUMNS
        for one in found.columns:
            begin, end = round(one.begin_s * 10), round(one.end_s * 10)
            drawn_bars[begin:end] = [one.most] * (end - begin)
        assert drawn_bars == counted


def _left_at(place: int, spans: list[tuple[int, int | None]]) -> int:
    """Waits that end at a moment: they are still counted at the end of a stretch."""
    return sum(left == place for _, left in spans)


def test_a_wait_shorter_than_a_bar_is_drawn() -> None:
    (only,) = lane("to play", (10, 10.001)).columns
    assert only.end_s - only.begin_s == pytest.approx(24 / COLUMNS)
    assert only.most == 1


def test_the_words_name_the_queue_that_grew_most() -> None:
    steady, growing = lane("to play", (-1, None)), lane("to train", (6, None), (12, None))
    assert queues_in_words([steady, growing]) == (
        "Episodes that wait, on average: 1.0 requested for an actor, 1.2 judged for the learner. "
        "The queue for the learner grew most, from 0 to 2."
    )
    assert "No queue is longer" in queues_in_words([steady])
    assert queues_in_words([]) == ""


def test_a_bar_is_as_high_as_its_share_of_the_highest() -> None:
    found = lane("to judge", (-5, 6), (3, 9))
    bars = list(ElementTree.fromstring(f"<svg>{drawn(found, top=100, window_s=24)}</svg>").iter("rect"))
    assert [float(one.attrib["height"]) for one in bars] == [TALL / 2, TALL, TALL / 2]
    assert {float(one.attrib["y"]) + float(one.attrib["height"]) for one in bars} == {100 + TALL}
    assert [one.findtext("title") for one in bars][1] == "2 ended, waiting for the judge"
