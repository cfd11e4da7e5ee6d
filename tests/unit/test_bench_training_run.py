"""How the training of a row is begun and gone on with, and which of its versions are measured."""

from pathlib import Path

import pytest

from bench.recipes.training_run import Version, choose_points, start_command
from hindcast.app.runs.runs import create_run
from hindcast.app.settings.configuration import resolve
from hindcast.events.envelope import BlobRef

pytestmark = pytest.mark.torch


def version(number: int, minutes: float) -> Version:
    return Version(version=number, minutes=minutes, weights=BlobRef(sha256=f"{number:064x}", size=1))


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
