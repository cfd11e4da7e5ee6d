"""Which settings go together with continuations that are trained on."""

from typing import Any

import pytest

from hindcast.app.settings.checks.sites import require_continuable
from hindcast.core.errors import SettingsError
from hindcast.core.rl.algorithm import find_algorithm
from hindcast.core.settings.changes import decode_settings
from hindcast.core.settings.schema import Settings


def settings(
    *, algorithm: str = "branching", options: dict[str, Any] | None = None, **sections: Any
) -> Settings:
    curriculum = {
        "environments": ("store",),
        "group_size": 4,
        "branches": 2,
        **sections.pop("curriculum", {}),
    }
    learner = {"algorithm": algorithm, "options": options or {}}
    return decode_settings({"curriculum": curriculum, "learner": learner, **sections})


def test_continuations_need_an_algorithm_that_learns_from_them() -> None:
    require_continuable(settings())
    require_continuable(settings(algorithm="grpo", curriculum={"branches": 0}))
    with pytest.raises(SettingsError, match=r"curriculum.branches = 2 .* learner.algorithm = 'grpo'"):
        require_continuable(settings(algorithm="grpo"))


@pytest.mark.parametrize(
    ("sections", "why"),
    [
        (
            {"curriculum": {"environments": ("store", "agent")}},
            "those of agent cannot be: its agent is a program",
        ),
        ({"actors": {"agent": "python mine.py"}}, "those of store cannot be: its agent is a program"),
        ({"curriculum": {"environments": ("webarena",)}}, "those of webarena cannot be: .* buying twice"),
    ],
)
def test_environments_that_cannot_be_continued_are_refused(sections: dict[str, Any], why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        require_continuable(settings(**sections))


def test_the_algorithm_needs_continuations_and_no_stored_successes() -> None:
    check = find_algorithm("branching").check
    assert check(settings()) == []
    (none,) = check(settings(curriculum={"branches": 0}))
    assert "curriculum.branches = 0" in none
    (stored,) = check(settings(options={"success_replay": "random"}))
    assert "learner.options.success_replay = 'off'" in stored
