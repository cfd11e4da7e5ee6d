"""Stretches of a log: how it is cut into them, and how they are shared out."""

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hindcast.core.errors import BlobMissing
from hindcast.learner.verify.diagnosis import Divergence
from hindcast.learner.verify.log_recomputer import StretchReport, recompute_all
from hindcast.learner.verify.survey import BASE, LogStretch, RecomputationStart, Survey, cut, thin

pytestmark = pytest.mark.torch


def covers(stretches: list[LogStretch], *, begin: int, until: int) -> bool:
    ends = [begin, *(one.until for one in stretches)]
    return [one.begin.position for one in stretches] == ends[:-1] and ends[-1] == until


@st.composite
def surveys(draw: st.DrawFn) -> tuple[Survey, list[RecomputationStart], int]:
    """Updates of various length, and checkpoints among them."""
    survey, checkpoints, position = Survey(), list[RecomputationStart](), 0
    for number, cost in enumerate(draw(st.lists(st.integers(0, 500), max_size=40)), 1):
        position += draw(st.integers(1, 9))
        survey.updates.append(position)
        survey.cpu_s.append(survey.cpu_s[-1] + cost)
        if draw(st.booleans()):
            position += 1
            checkpoints.append(RecomputationStart(position=position, update=number))
    return survey, checkpoints, position + draw(st.integers(1, 5))


@given(surveys(), st.integers(1, 5))
def test_stretches_follow_each_other_without_a_gap_and_meet_at_checkpoints(
    drawn: tuple[Survey, list[RecomputationStart], int], processes: int
) -> None:
    survey, checkpoints, until = drawn
    fine = cut(BASE, checkpoints, until=until)
    coarse = thin(fine, survey, processes=processes)
    assert covers(fine, begin=0, until=until)
    assert covers(coarse, begin=0, until=until)
    assert {one.begin for one in coarse} <= {BASE, *checkpoints}
    assert len(fine) == 1 + len([checkpoint for checkpoint in checkpoints if checkpoint.position < until])


@given(surveys(), st.integers(1, 5))
def test_thinned_stretches_are_few_and_each_but_the_last_is_worth_a_start(
    drawn: tuple[Survey, list[RecomputationStart], int], processes: int
) -> None:
    survey, checkpoints, until = drawn
    coarse = thin(cut(BASE, checkpoints, until=until), survey, processes=processes)
    total = survey.cpu_s_between(0, until)
    if total > 0:
        assert len(coarse) <= 4 * processes + 1
        goal = total / (4 * processes)
        assert all(survey.cpu_s_between(one.begin.position, one.until) >= goal for one in coarse[:-1])


class Scripted:
    """A recomputer that takes the turns it is told to, and finds what it is told to find."""

    elsewhere = False

    def __init__(self, turns: dict[int, int], diverging: dict[int, int], failing: int = -1) -> None:
        """By where a stretch begins: how many turns it takes, and the position it diverges at."""
        self.turns = turns
        self.diverging = diverging
        self.failing = failing
        self.done: list[int] = []
        self.left_out: list[int] = []

    async def recompute(self, stretch: LogStretch, *, updated: Callable[[], None]) -> StretchReport:
        begin = stretch.begin.position
        try:
            for _ in range(self.turns.get(begin, 1)):
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.left_out.append(begin)
            raise
        if begin == self.failing:
            raise BlobMissing("gone")
        self.done.append(begin)
        at = self.diverging.get(begin)
        divergence = None
        if at is not None:
            divergence = Divergence(
                position=at, event="update.applied", what="loss", expected="", found="", cause=""
            )
        return StretchReport(
            stretch=stretch, updates=1, digests=1, weights=0, checkpoints=0, cpu_s=0, divergence=divergence,
            beyond=None, deviations=(),
        )  # fmt: skip

    async def close(self) -> None:
        """Nothing to end."""


STRETCHES = cut(BASE, [RecomputationStart(position=at, update=at) for at in (10, 20, 30, 40)], until=50)


def nothing() -> None:
    """Of no interest here."""


@given(
    turns=st.fixed_dictionaries({at: st.integers(0, 6) for at in (0, 10, 20, 30, 40)}),
    diverging=st.sets(st.sampled_from([0, 10, 20, 30, 40])),
    count=st.integers(1, 4),
)
def test_everything_up_to_the_first_divergence_is_covered_however_long_each_takes(
    turns: dict[int, int], diverging: set[int], count: int
) -> None:
    scripted = [Scripted(turns, {at: at + 5 for at in diverging}) for _ in range(count)]
    reports = asyncio.run(recompute_all(STRETCHES, scripted, updated=nothing))
    first = min(diverging, default=None)
    begins = [report.stretch.begin.position for report in reports]
    assert begins == [at for at in (0, 10, 20, 30, 40) if first is None or at <= first]
    assert [r.divergence is not None for r in reports] == [at == first for at in begins]
    done = [at for one in scripted for at in one.done]
    assert len(done) == len(set(done))


async def test_what_lies_after_a_divergence_is_left_in_the_middle() -> None:
    slow, quick = (Scripted({10: 50, 0: 3}, {0: 5}) for _ in range(2))
    reports = await recompute_all(STRETCHES, [slow, quick], updated=nothing)
    assert [report.stretch.begin.position for report in reports] == [0]
    assert slow.left_out + quick.left_out == [10]


async def test_what_cannot_be_recomputed_is_said_as_it_is() -> None:
    with pytest.raises(BlobMissing, match="gone"):
        await recompute_all(STRETCHES, [Scripted({}, {}, failing=20) for _ in range(2)], updated=nothing)
