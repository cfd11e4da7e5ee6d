"""Charts of the page: nothing is sampled, gaps are gaps, and whatever is written in them is text."""

import re
from collections.abc import Iterable
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.page.charts import metric_chart, pool_metric, pool_versions, success_chart
from storage.readmodel.answers import MetricColumn

counts = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=300).map(
    lambda pairs: [(version, min(won, judged), judged) for version, (won, judged) in enumerate(pairs)]
)
numbers = st.floats(allow_nan=False, allow_infinity=False, width=32)


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
    points = pool_versions(told, most=most)
    assert len(points) <= most
    assert sum(point.judged for point in points) == sum(judged for _, _, judged in told)
    assert sum(point.successes for point in points) == sum(won for _, won, _ in told)
    assert all(point.judged for point in points)
    assert [p.first for p in points] == sorted(p.first for p in points)
    assert all(0 <= p.low <= p.rate <= p.high <= 1 for p in points)


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
    for x, y in re.findall(r"(-?[\d.]+),(-?[\d.]+)", drawn):
        assert 0 <= float(x) <= 360
        assert 0 <= float(y) <= 150


def test_a_version_without_verdicts_is_a_gap_in_the_line() -> None:
    points = pool_versions([(0, 1, 2), (1, 1, 2), (2, 0, 0), (3, 2, 2), (4, 2, 2)])
    drawn = str(success_chart(points, link="/r/episodes?policy={version}", label="success"))
    assert drawn.count("<polyline") == 2
    assert drawn.count("<circle") == 4
    assert 'href="/r/episodes?policy=3"' in drawn


def test_a_point_of_several_versions_leads_to_the_episodes_of_all_of_them() -> None:
    points = pool_versions([(3, 1, 2), (4, 1, 2), (5, 0, 2)], most=2)
    drawn = str(success_chart(points, link="/r/episodes?policy={version}", label="success"))
    assert 'href="/r/episodes?policy=3-4"' in drawn
    assert 'href="/r/episodes?policy=5"' in drawn


@pytest.mark.parametrize("label", ["<script>x</script>", '" onload="x'])
def test_what_is_written_in_a_chart_is_text(label: str) -> None:
    drawn = str(metric_chart(pool_metric(each([0.5, 1.0])), label=label))
    assert ElementTree.fromstring(drawn).attrib["aria-label"] == label
