"""Settings of models beside the policy that would train nobody, or nothing."""

from typing import Any

import pytest

from hindcast.app.settings.checks.cross_checks import find_conflicts
from hindcast.core.settings.changes import decode_settings

ENDPOINT = {"base_url": "http://localhost:1/v1", "model": "m"}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"relabeler": {"kind": "learned"}}, "relabeler_every = 0 contradict each other"),
        ({"learner": {"relabeler_every": 8}}, "relabeler_every = 8 contradict each other"),
        ({"relabeler": {"kind": "rules", "teacher": "rules"}}, "needs relabeler.kind = 'learned'"),
        (
            {"relabeler": {"kind": "endpoint", "families": "run"}, "endpoint": ENDPOINT},
            "relabeler.kind = 'endpoint' does not name it: every goal would be dropped",
        ),
        (
            {
                "judge": {"judges": ["rules", "orm"]},
                "learner": {"orm_every": 128, "orm_epochs": 40},
            },
            "make batches of 5120 examples; a plan is one event, which holds 2000: lower learner.orm_every",
        ),
        ({"evolution": {"valued_by": "orm"}}, "needs evolution.generator and learner.orm_every"),
        (
            {"learner": {"phase_demonstrations": True, "algorithm": "webrl", "phase_episodes": 8}},
            "(they are 0)",
        ),
    ],
)
def test_what_contradicts_itself_is_said(values: dict[str, Any], words: str) -> None:
    (found,) = find_conflicts(decode_settings(values))
    assert words in found


def test_a_learned_relabeler_with_its_teacher_and_a_valuing_judge_go_together() -> None:
    values = {
        "relabeler": {"kind": "learned", "teacher": "rules"},
        "learner": {"relabeler_every": 8, "orm_every": 8, "phase_episodes": 8},
        "judge": {"judges": ["rules", "orm"]},
        "evolution": {"valued_by": "orm", "generator": "embedded"},
    }
    assert find_conflicts(decode_settings(values)) == []


@pytest.mark.parametrize("kind", ["rules", "learned"])
def test_relabelers_that_name_a_goals_family_can_keep_those_of_the_run(kind: str) -> None:
    every = 8 if kind == "learned" else 0
    values = {"relabeler": {"kind": kind, "families": "run"}, "learner": {"relabeler_every": every}}
    assert find_conflicts(decode_settings(values)) == []
