"""The learning benchmark's own rules: how a run is begun and gone on with, which versions are measured, and when a
difference counts."""

from pathlib import Path

import pytest

from bench.loop import Point, SeedReport, Version, choose_points, start_command
from hindcast.app.evaluation.evaluation import EvaluationReport
from hindcast.app.runs.runs import create_run
from hindcast.app.settings.configuration import resolve
from hindcast.core.rl.statistics import wilson
from hindcast.events.envelope import BlobRef

pytestmark = pytest.mark.torch


def version(number: int, minutes: float) -> Version:
    return Version(version=number, minutes=minutes, weights=BlobRef(sha256=f"{number:064x}", size=1))


def measured(successes: int, episodes: int = 100) -> EvaluationReport:
    band = wilson(successes, episodes)
    return EvaluationReport(
        policy="p",
        suite="s",
        rate=band.rate,
        low=band.low,
        high=band.high,
        episodes=episodes,
        lost=0,
        mean_steps=1.0,
        mean_reward=band.rate,
        reward_low=band.low,
        reward_high=band.high,
        by_task={},
    )


def point(minutes: float, report: EvaluationReport) -> Point:
    return Point(
        version=int(minutes),
        minutes=minutes,
        success=report.rate,
        low=report.low,
        high=report.high,
        episodes=report.episodes,
    )


def seed_report(before: EvaluationReport, *points: tuple[float, EvaluationReport]) -> SeedReport:
    return SeedReport(
        seed=1,
        run="loop-1",
        home="home",
        before=before,
        after=points[-1][1],
        mastered_before=measured(98),
        mastered_after=measured(97),
        curve=[point(minutes, report) for minutes, report in points],
        minutes=points[-1][0],
        updates=1,
        training_episodes=1,
        events=1,
        log_digest="",
    )


def test_a_training_that_was_cut_off_goes_on_under_the_settings_that_its_run_began_with(
    tmp_path: Path,
) -> None:
    def command() -> list[str]:
        return start_command("row", ["run.seed=3"], recipe="arpo", minutes=1.0, updates=2, home=tmp_path)

    begun = command()
    assert begun[begun.index("--recipe") + 1] == "arpo"
    assert begun[begun.index("--set") :] == ["--set", "evaluation.every=0", "--set", "run.seed=3"]
    create_run(resolve(recipe="arpo", overrides=["run.seed=3"]), name="row", home=tmp_path)
    assert command() == begun[: begun.index("--recipe")]


def test_points_are_spread_over_time_and_end_with_the_last_version() -> None:
    kept = [version(10, 1.0), version(20, 2.2), version(30, 2.9), version(40, 4.1), version(43, 8.0)]
    assert [one.version for one in choose_points(kept, 4)] == [20, 40, 43]
    assert [one.version for one in choose_points(kept, 1)] == [43]
    assert choose_points([], 3) == []


def test_a_difference_counts_only_when_the_intervals_lie_apart() -> None:
    near = seed_report(measured(30), (5.0, measured(45)))
    far = seed_report(measured(30), (5.0, measured(45)), (9.0, measured(60)))
    assert (near.apart, near.significant_after) == (False, None)
    assert (far.apart, far.significant_after) == (True, 9.0)
    assert abs(far.gain - 0.30) < 1e-9
