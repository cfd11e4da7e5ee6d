"""The timeline's lanes of queues, against numbers worked out by hand."""

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
