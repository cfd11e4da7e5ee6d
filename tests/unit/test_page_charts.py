"""Charts of the page: nothing is sampled, gaps are gaps, labels are readable at any width, what is written is text."""

import json
import re
from collections.abc import Iterable
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hindcast.app.page.charts import (
    DRAWN_OUT,
    MOST_POINTS,
    SMALL,
    TALL,
    evaluation_chart,
    evaluation_curves,
    metric_chart,
    pool_metric,
    pool_versions,
    round_values,
    run_colors,
    success_chart,
    tick_labels,
)
from hindcast.app.page.rendering import FOLDER
from hindcast.app.page.views.axes import Axis
from hindcast.app.page.views.timeline import Bar, Published, TimelinePage, bottleneck_of, duration, lanes
from hindcast.core.rl.statistics import wilson
from hindcast.storage.readmodel.evaluation_queries import EvaluationRate, EvaluationRow
from hindcast.storage.readmodel.metrics import MetricColumn

counts = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=300).map(
    lambda pairs: [(version, min(won, judged), judged) for version, (won, judged) in enumerate(pairs)]
)
numbers = st.floats(allow_nan=False, allow_infinity=False, width=32)


GLYPH = 7.0
"""Pixels that a digit takes at most at the size of labels."""
TIMELINE = TimelinePage(
    until_ns=0,
    window_s=60.0,
    rows={"actor.1": 5, "learner": 1},
    bars=[
        Bar(lane="actor.1", row=row, begin_s=10.0, end_s=30.0, name=f"ep_{kind}", kind=kind, title=kind)
        for row, kind in enumerate(("success", "failure", "undecided", "open", "abandoned"))
    ],
    published=[Published(version=3, at_s=5.0, first_lane="actor.1", first_s=10.0)],
    cut=False,
    bottleneck="",
)


def texts(drawn: str, kind: str) -> list[ElementTree.Element]:
    """Written parts of a picture."""
    return [one for one in ElementTree.fromstring(drawn).iter("text") if one.get("class") == kind]


def for_script(drawn: str) -> Any:
    """The values that the page's script gets."""
    return json.loads(ElementTree.fromstring(drawn).attrib["data-chart"])


def alone(listed: Iterable[tuple[int, int, int]]) -> dict[int, dict[str, tuple[int, int]]]:
    """Versions that played one family."""
    return {version: {"store/buy": (won, judged)} for version, won, judged in listed}


def each(values: Iterable[float], first: int = 1) -> list[MetricColumn]:
    """A column of its own for every update."""
    return [
        MetricColumn(first=update, last=update, updates=1, low=value, high=value, value=value)
        for update, value in enumerate(values, first)
    ]


@given(counts, st.integers(1, 50))
def test_every_verdict_is_in_one_point_and_no_more_points_are_drawn_than_fit(
    told: list[tuple[int, int, int]], most: int
) -> None:
    points = pool_versions(alone(told), most=most)
    assert len(points) <= most
    assert sum(point.judged for point in points) == sum(judged for _, _, judged in told)
    assert sum(point.successes for point in points) == sum(won for _, won, _ in told)
    assert all(point.judged for point in points)
    assert [p.first for p in points] == sorted(p.first for p in points)
    assert all(0 <= p.low <= p.rate <= p.high <= 1 for p in points)


def test_a_curve_does_not_rise_since_easier_families_are_played() -> None:
    played = {0: {"easy": (9, 10), "hard": (3, 30)}, 1: {"easy": (27, 30), "hard": (1, 10)}}
    first, second = pool_versions(played)
    assert first.rate == pytest.approx(second.rate) == pytest.approx(0.5)
    assert (first.successes, first.judged, second.successes, second.judged) == (12, 40, 28, 40)


@given(st.lists(numbers, max_size=400), st.integers(1, 60))
def test_a_metrics_lowest_highest_and_last_values_are_drawn(values: list[float], most: int) -> None:
    columns = pool_metric(each(values), most=most)
    assert len(columns) <= most
    assert sum(column.updates for column in columns) == len(values)
    if not values:
        assert columns == []
        return
    assert min(column.low for column in columns) == min(values)
    assert max(column.high for column in columns) == max(values)
    assert (columns[-1].last, columns[-1].value) == (len(values), values[-1])


@given(st.lists(numbers, min_size=1, max_size=40))
def test_any_metric_makes_a_picture_within_its_frame(values: list[float]) -> None:
    drawn = str(metric_chart(pool_metric(each(values)), label="a metric"))
    ElementTree.fromstring(drawn)
    assert "nan" not in drawn
    for x, y in re.findall(r"(-?[\d.]+),(-?[\d.]+)", drawn[drawn.index("<svg") :]):
        assert 0 <= float(x) <= DRAWN_OUT
        assert 0 <= float(y) <= SMALL
    labels = [text.text for text in texts(drawn, "tick") if text.attrib["text-anchor"] == "end"]
    assert len(set(labels)) == len(labels) > 0


@given(counts.filter(lambda told: any(judged for _, _, judged in told)))
def test_every_point_stands_where_its_numbers_are(told: list[tuple[int, int, int]]) -> None:
    points = pool_versions(alone(told))
    drawn = ElementTree.fromstring(str(success_chart(points, link="/{version}", label="success")))
    first, last = points[0].last, points[-1].last
    for point, anchor in zip(points, drawn.iter("a"), strict=True):
        dot, whisker, said = anchor.find("circle"), anchor.find("line"), anchor.findtext("title")
        assert dot is not None
        assert whisker is not None
        x = float(dot.attrib["cx"].removesuffix("%"))
        if first != last:
            assert first + x / 100 * (last - first) == pytest.approx(point.last, abs=0.02)
        shares = [1 - float(y) / TALL for y in (dot.attrib["cy"], whisker.attrib["y1"], whisker.attrib["y2"])]
        assert shares == pytest.approx([point.rate, point.high, point.low], abs=0.001)
        assert f"n={point.judged}" in (said or "")


def evaluated(version: int, *won: int, of: int = 20) -> EvaluationRow:
    """An evaluation with a number of successes at each temperature."""
    return EvaluationRow(
        number=version,
        state="finished",
        version=version,
        version_low=version,
        version_high=version,
        tasks=of,
        temperatures=(0.0, 1.0),
        skipped=(),
        seconds=1.0,
        share=0.1,
        reason=None,
        rates=tuple(
            EvaluationRate(
                temperature=float(place),
                family=None,
                successes=successes,
                judged=of,
                lost=0,
                mean_reward=None,
                success=wilson(successes, of),
            )
            for place, successes in enumerate(won)
        ),
    )


def test_evaluations_are_a_curve_for_each_temperature_with_marks_of_different_forms_at_their_values() -> None:
    curves = evaluation_curves([evaluated(0, 5, 4), evaluated(10, 10, 8), evaluated(20, 15, 8)])
    assert [curve.name for curve in curves] == ["greedy", "temperature 1"]
    assert [[point.rate for point in curve.points] for curve in curves] == [
        [0.25, 0.5, 0.75],
        [0.2, 0.4, 0.4],
    ]
    drawn = ElementTree.fromstring(str(evaluation_chart(curves, link="/{version}", label="held out")))
    anchors = list(drawn.iter("a"))
    assert [anchor.attrib["href"] for anchor in anchors] == ["/0", "/10", "/20"] * 2
    said = [anchor.findtext("title") for anchor in anchors]
    assert (said[1], said[4]) == ("policy 10: 50% [30%, 70%] n=20", "policy 10: 40% [22%, 61%] n=20")
    discs = [float(one.attrib["cy"]) for one in drawn.iter("circle")]
    squares = [float(one.attrib["y"]) for one in drawn.iter("svg") if "x" in one.attrib]
    assert [1 - y / TALL for y in discs] == pytest.approx([0.25, 0.5, 0.75], abs=0.001)
    assert [1 - y / TALL for y in squares] == pytest.approx([0.2, 0.4, 0.4], abs=0.001)
    assert len(list(drawn.iter("polyline"))) == len(list(drawn.iter("polygon"))) == 2


def test_evaluations_that_do_not_fit_are_added_up_and_none_is_left_out() -> None:
    rows = [evaluated(10 * number, number % 20, 3) for number in range(500)]
    greedy, sampled = evaluation_curves(rows)
    for curve, place in ((greedy, 0), (sampled, 1)):
        assert len(curve.points) <= MOST_POINTS
        assert sum(point.judged for point in curve.points) == 20 * 500
        assert sum(point.successes for point in curve.points) == sum(r.rates[place].successes for r in rows)


def test_a_first_evaluation_that_is_still_running_has_no_chart() -> None:
    running = msgspec.structs.replace(evaluated(0), state="running")
    assert evaluation_curves([running]) == []
    assert str(evaluation_chart([], link="/{version}", label="held out")) == ""


def test_a_metrics_line_passes_through_every_value() -> None:
    values = [3.0, -1.5, 0.25, 7.0, 2.0]
    drawn = ElementTree.fromstring(str(metric_chart(each(values), label="a metric")))
    labels = [
        text for text in texts(ElementTree.tostring(drawn, "unicode"), "tick") if text.attrib["x"] == "-6"
    ]
    (low, foot), (high, head) = [
        (float((one.text or "").replace("−", "-")), float(one.attrib["y"]) - 4)
        for one in (labels[0], labels[-1])
    ]
    line = next(drawn.iter("polyline")).attrib["points"].split()
    read = [high - (float(at.split(",")[1]) - head) / (foot - head) * (high - low) for at in line]
    assert read == pytest.approx(values, abs=0.01)
    assert [float(at.split(",")[0]) for at in line] == [0, 250, 500, 750, 1000]


def test_a_version_without_verdicts_is_a_gap_in_the_line() -> None:
    points = pool_versions(alone([(0, 1, 2), (1, 1, 2), (2, 0, 0), (3, 2, 2), (4, 2, 2)]))
    drawn = str(success_chart(points, link="/r/episodes?policy={version}", label="success"))
    assert drawn.count("<polyline") == 2
    assert drawn.count("<circle") == 4
    assert 'href="/r/episodes?policy=3"' in drawn


def test_an_update_without_the_metric_is_a_gap_in_the_line() -> None:
    told = [*each([1.0, 2.0]), *each([4.0], first=5), *each([3.0, 2.5], first=8)]
    drawn = ElementTree.fromstring(str(metric_chart(told, label="a metric")))
    lines = [line.attrib["points"].split() for line in drawn.iter("polyline")]
    assert [len(line) for line in lines] == [2, 2]
    assert [mark.text for mark in drawn.iter("title")] == ["update 5: 4", "update 9: 2.5"]


@given(st.lists(numbers, min_size=1, max_size=200), st.integers(1, 50))
def test_the_script_gets_every_value_of_a_metric(values: list[float], most: int) -> None:
    columns = pool_metric(each(values), most=most)
    (curve,) = for_script(str(metric_chart(columns, label="a metric")))["curves"]
    for name in ("first", "last", "low", "high"):
        assert curve[name] == [getattr(column, name) for column in columns]
    assert curve["y"] == [column.value for column in columns]
    assert curve["x"] == curve["last"]
    assert sum(curve["n"]) == len(values)


def test_a_gap_is_a_place_without_a_value_for_the_script() -> None:
    points = pool_versions(alone([(0, 1, 2), (1, 1, 2), (2, 0, 0), (3, 2, 2)]))
    (curve,) = for_script(str(success_chart(points, link="/{version}", label="success")))["curves"]
    assert curve["x"] == [0, 1, 2, 3]
    assert curve["y"][2] is None
    assert [n for n in curve["n"] if n is not None] == [2, 2, 2]


def test_a_chart_over_another_axis_leaves_out_what_has_no_place_on_it() -> None:
    points = pool_versions(alone([(0, 1, 2), (1, 1, 2), (2, 2, 2)]))
    axis = Axis(name="position", of_versions={0: 9, 2: 140})
    chart = for_script(str(success_chart(points, link="/{version}", label="success", axis=axis)))
    assert chart["below"] == "position in the log"
    assert [x for x, y in zip(chart["curves"][0]["x"], chart["curves"][0]["y"], strict=True) if y] == [9, 140]


def test_a_run_keeps_its_color_when_another_is_chosen() -> None:
    names = [f"run-{number}" for number in range(12)]
    alone_color = run_colors(names, ["run-4"])["run-4"]
    assert run_colors(names, ["run-9", "run-4"])["run-4"] == alone_color
    assert run_colors(names, ["run-4", "run-10"]) == {"run-4": 4, "run-10": 10}, "one color, one run"


def test_a_point_of_several_versions_leads_to_the_episodes_of_all_of_them() -> None:
    points = pool_versions(alone([(3, 1, 2), (4, 1, 2), (5, 0, 2)]), most=2)
    drawn = str(success_chart(points, link="/r/episodes?policy={version}", label="success"))
    assert 'href="/r/episodes?policy=3-4"' in drawn
    assert 'href="/r/episodes?policy=5"' in drawn


def test_a_negative_label_has_its_sign_and_room_for_it() -> None:
    drawn = str(metric_chart(each([-0.00009, 0.0, 0.0005]), label="kl"))
    labels = [text.text or "" for text in texts(drawn, "tick") if text.attrib["text-anchor"] == "end"]
    assert labels == ["−0.0002", "0", "0.0002", "0.0004", "0.0006"]
    margin = re.search(r"[.]chart [{] --left: ([0-9]+)px", (FOLDER / "static" / "page.css").read_text())
    assert margin is not None
    assert max(map(len, labels)) * GLYPH + 3 <= float(margin[1])


def test_a_value_a_hair_below_zero_makes_no_label_below_zero() -> None:
    assert round_values(-1e-9, 0.0006, most=4) == pytest.approx([0.0, 0.0002, 0.0004, 0.0006])


@pytest.mark.parametrize(
    ("ticks", "labels"),
    [
        ([0.0, 0.5, 1.0], ["0", "0.5", "1.0"]),
        ([12.34, 12.345, 12.35], ["12.340", "12.345", "12.350"]),
        ([0.0, 2e-7, 4e-7], ["0", "2e-7", "4e-7"]),
        ([-2e6, 0.0, 2e6], ["−2e6", "0", "2e6"]),
        ([1.5], ["1.5"]),
    ],
)
def test_labels_have_the_decimals_that_tell_them_apart(ticks: list[float], labels: list[str]) -> None:
    assert tick_labels(ticks) == labels


@pytest.mark.parametrize(
    "drawn",
    [
        str(metric_chart(each([1.0, 0.0, 2.0]), label="a metric")),
        str(success_chart(pool_versions(alone([(0, 1, 2), (1, 2, 2)])), link="/{version}", label="success")),
        str(lanes(TIMELINE, base="/run", as_of=None)),
    ],
)
def test_nothing_that_is_read_shrinks_with_the_picture(drawn: str) -> None:
    """Only lines are drawn out to the width that there is: text, dots and bars keep their size on a phone."""
    picture = ElementTree.fromstring(f"<div>{drawn}</div>")
    scaled = [part.tag for one in picture.iter("svg") if "viewBox" in one.attrib for part in one.iter()]
    assert set(scaled) <= {"svg", "g", "polygon", "polyline"}
    across = [
        part.attrib[name] for part in picture.iter() for name in ("x", "cx", "x1") if name in part.attrib
    ]
    assert all(place.endswith("%") or float(place) <= 0 for place in across)


def test_what_an_axis_counts_stands_below_everything_that_is_drawn() -> None:
    for drawn, tall in (
        (str(metric_chart(each([1.0, 0.0, 2.0]), label="a metric")), SMALL),
        (
            str(
                success_chart(
                    pool_versions(alone([(0, 1, 2), (1, 2, 2)])), link="/{version}", label="success"
                )
            ),
            TALL,
        ),
    ):
        (axis,) = texts(drawn, "axis")
        numbers = [float(text.attrib["y"]) for text in texts(drawn, "tick")]
        assert float(axis.attrib["y"]) > max(numbers) + 10 > tall


def test_the_timelines_bars_differ_in_more_than_their_colour() -> None:
    drawn = str(lanes(TIMELINE, base="/run", as_of=7))
    bars = list(ElementTree.fromstring(drawn).iter("rect"))
    css = (FOLDER / "static" / "page.css").read_text().splitlines()

    def said(kind: str, what: str) -> bool:
        """Whether the style says so of bars of a kind."""
        return any(re.search(rf"[.]bar[.]{kind}\b", line) and what in line for line in css)

    kinds = {one.attrib["class"].removeprefix("bar "): one.attrib["height"] for one in bars}
    looks = {(tall, said(kind, "fill: var(--paper)"), said(kind, "dash")) for kind, tall in kinds.items()}
    assert len(looks) == len(bars) == 5
    assert drawn.count("as_of=7") == 5
    assert ElementTree.fromstring(drawn).find("line[@class='leads']") is not None


def _bar(kind: str, begin_s: float, end_s: float) -> Bar:
    return Bar(lane=kind, row=0, begin_s=begin_s, end_s=end_s, name="x", kind=kind, title="")


@pytest.mark.parametrize(
    ("bars", "words"),
    [
        ([], ""),
        (
            [("update", -5, 6), ("success", 0, 10), ("failure", 0, 10)],
            "The learner is the bottleneck of this stretch: it computes 60% of the time; 2.0 episodes",
        ),
        (  # updates that overlap count once, and what lies outside the window does not count
            [("update", 0, 2), ("update", 1, 3), ("open", -10, 25)],
            "Actors are the bottleneck of this stretch: the learner waits 70% of the time; 1.0 episodes",
        ),
        ([("update", 0, 1), ("success", 2, 4)], "Neither is the bottleneck of this stretch: nothing is played for 80%"),
    ],
)  # fmt: skip
def test_the_timeline_says_who_waited_for_whom(bars: list[tuple[str, float, float]], words: str) -> None:
    assert bottleneck_of([_bar(*bar) for bar in bars], 10.0).startswith(words)


@pytest.mark.parametrize("label", ["<script>x</script>", '" onload="x'])
def test_what_is_written_in_a_chart_is_text(label: str) -> None:
    drawn = str(metric_chart(pool_metric(each([0.5, 1.0])), label=label))
    assert [svg.attrib["aria-label"] for svg in ElementTree.fromstring(drawn).findall("svg")] == [label]
    assert for_script(drawn)["label"] == label


def test_a_duration_has_its_largest_whole_unit() -> None:
    assert [duration(one) for one in (30, 90, 120, 600, 3600)] == ["30 s", "90 s", "2 min", "10 min", "1 h"]
