"""Success by interaction budget, read off one set of episodes."""

import pytest
from typer.testing import CliRunner

from hindcast.app.cli import app
from hindcast.app.evaluation.evaluation import EvaluatedEpisode, EvaluatedStep, plan_attempts
from hindcast.app.evaluation.interaction_budget import success_within, with_budget
from hindcast.core.errors import SettingsError
from stories.curriculum_story import SOURCES

pytestmark = pytest.mark.torch


def played(outcome: str, steps: int) -> EvaluatedEpisode:
    return EvaluatedEpisode("buy", [EvaluatedStep("page", "ok")] * steps, "exit", outcome)  # type: ignore[arg-type]


def test_a_success_counts_from_the_budget_on_that_it_needed() -> None:
    episodes = [played("success", 2), played("success", 5), played("failure", 1), played("success", 16)]
    points = success_within(episodes, [16, 2, 4, 8])
    assert [(one.budget, one.rate, one.episodes) for one in points] == [
        (2, 0.25, 4),
        (4, 0.25, 4),
        (8, 0.5, 4),
        (16, 0.75, 4),
    ]
    assert all(one.low < one.rate < one.high for one in points)
    assert success_within([], [4])[0].high == 1.0


def test_all_are_played_with_the_largest_budget() -> None:
    requests = plan_attempts(
        [SOURCES["shop"].task("buy", seed) for seed in range(2)], attempts=1, temperature=0.0, lease_s=1.0
    )
    widened = with_budget(requests, 16)
    assert [one.task.max_steps for one in widened] == [16, 16]
    assert [one.task.seed for one in widened] == [0, 1]
    assert [one.episode for one in widened] == [one.episode for one in requests]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--budgets", "2,x"], "numbers of steps above 0"),
        (["--budgets", "0"], "numbers of steps above 0"),
        (
            ["--budgets", "2", "--set", "scaffold.states=laser"],
            "a scaffold's actions depend on the number of steps left",
        ),
    ],
)
def test_budgets_that_cannot_be_read_off_are_refused(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(app, ["eval", *arguments])
    assert isinstance(result.exception, SettingsError)
    assert words in str(result.exception)
