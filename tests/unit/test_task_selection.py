"""Tasks that a policy can learn from: kept by their attempts, split by the seed, named in a file that a run takes."""

from pathlib import Path

import pytest

from hindcast.actors.curriculum.pool import configured_pool
from hindcast.app.evaluation.evaluation import OutcomeTally, plan_attempts
from hindcast.app.evaluation.task_selection import TaskSelection, divide, held_out_file, settings_file
from hindcast.app.settings.checks.cross_checks import find_conflicts
from hindcast.app.settings.checks.names import name_conflicts
from hindcast.app.settings.configuration import resolve
from hindcast.core.domain.evidence import Judgment
from hindcast.core.errors import SettingsError
from hindcast.core.settings.changes import decode_settings
from hindcast.core.settings.schema import CurriculumSettings
from hindcast.events.catalogue import EpisodeAbandoned, EpisodeJudged
from hindcast.events.catalogue.verdict import JudgeIdentity
from stories.curriculum_story import SOURCES

pytestmark = pytest.mark.torch

TASKS = [SOURCES["shop"].task("buy", seed) for seed in range(8)]
ATTEMPTS = 4


def attempted(*successes: int) -> OutcomeTally:
    """A tally in which task i was solved so many times in its attempts."""
    requests = plan_attempts(TASKS, attempts=ATTEMPTS, temperature=1.0, lease_s=1.0)
    tally = OutcomeTally(requests)
    for number, request in enumerate(requests):
        index, attempt = number % len(TASKS), number // len(TASKS)
        outcome = "success" if attempt < successes[index] else "failure"
        judgment = Judgment(outcome=outcome, reward=float(outcome == "success"), reason="")
        judge = JudgeIdentity(name="rules", version="1")
        fact = EpisodeJudged(episode=request.episode, task_id="", judge=judge, judgment=judgment)
        assert tally.apply(fact) is None
    assert tally.done == len(requests)
    return tally


def divided(*successes: int, held_out: float = 0.5, seed: int = 1) -> TaskSelection:
    return divide(TASKS, attempted(*successes), held_out=held_out, run_seed=seed)


def test_tasks_with_at_least_one_success_are_kept_and_the_others_not() -> None:
    found = divided(0, 1, 4, 0, 0, 2, 0, 1)
    assert [one.task for one in found.tasks if one.kept] == [f"shop/buy:{seed}" for seed in (1, 2, 5, 7)]
    assert [(one.successes, one.attempts) for one in found.tasks][:3] == [(0, 4), (1, 4), (4, 4)]


def test_the_two_parts_share_no_task_and_their_rates_are_reported_apart() -> None:
    found = divided(0, 1, 4, 0, 0, 2, 0, 1)
    inside, outside = found.names(held_out=False), found.names(held_out=True)
    assert (len(inside), len(outside)) == (2, 2)
    assert not set(inside) & set(outside)
    solved = {one.task: one.successes for one in found.tasks}
    for part, names in ((found.in_domain, inside), (found.out_of_domain, outside)):
        assert part.episodes == 2 * ATTEMPTS
        assert part.rate == pytest.approx(sum(solved[name] for name in names) / part.episodes)


def test_what_is_held_out_follows_from_the_seed() -> None:
    solved = [1] * 8
    drawn = {seed: tuple(divided(*solved, seed=seed).names(held_out=True)) for seed in range(6)}
    assert len(set(drawn.values())) > 1
    assert drawn[3] == tuple(divided(*solved, seed=3).names(held_out=True))
    assert divided(*solved, held_out=0.0).names(held_out=True) == []


def test_an_attempt_that_a_broken_browser_lost_is_tried_again() -> None:
    (request,) = plan_attempts(TASKS[:1], attempts=1, temperature=1.0, lease_s=1.0)
    tally = OutcomeTally([request])
    lost = EpisodeAbandoned(episode=request.episode, task_id="", reason="browser_died", detail="", steps=0)
    again = tally.apply(lost)
    assert again is not None
    assert again.task == request.task
    assert tally.done == 0


def test_the_file_names_tasks_that_a_run_then_draws_from(tmp_path: Path) -> None:
    path = tmp_path / "tasks.toml"
    path.write_text(settings_file(["store/buy:3", "store/buy:0", "miniwob/enter-text:2"], recipe="arpo"))
    resolved = resolve(file=path, environment={}, folder=tmp_path)
    assert resolved.recipe == "arpo"
    assert resolved.settings.curriculum.tasks == ("store/buy:3", "store/buy:0", "miniwob/enter-text:2")
    assert held_out_file(path).name == "tasks.held_out.toml"


def test_a_pool_of_named_tasks_holds_these_and_no_others() -> None:
    names = ("shop/buy:3", "shop/buy:0", "forms/fill:2")
    settings = CurriculumSettings(environments=tuple(SOURCES), families=("shop/find",), tasks=names)
    pool = configured_pool(SOURCES, settings)
    assert [task.name for family in pool.values() for task in family.values()] == list(names)


def test_a_task_of_no_environment_or_without_a_seed_is_a_worded_error() -> None:
    for task in ("shop/buy:1", "store/buy", "store/buy:x"):
        (conflict,) = name_conflicts(decode_settings({"curriculum": {"tasks": [task]}}))
        assert "environment/family:seed" in conflict
    with pytest.raises(SettingsError, match="which is of none of"):
        configured_pool(SOURCES, CurriculumSettings(environments=("shop",), tasks=("forms/fill:1",)))


@pytest.mark.parametrize(
    ("learner", "said"),
    [
        ({"dual_clip": 0.9}, "above 1"),
    ],
)
def test_settings_that_would_do_nothing_or_harm_are_refused(learner: dict[str, object], said: str) -> None:
    (conflict,) = find_conflicts(decode_settings({"learner": learner}))
    assert said in conflict
    assert find_conflicts(decode_settings({"learner": {"dual_clip": 3, "format_penalty": 1}})) == []


def test_a_scaffolds_headings_and_relabelling_are_refused_together() -> None:
    asked = {"learner": {"algorithm": "hsl"}, "relabeler": {"kind": "rules"}}
    scaffold = {"states": "laser", "shown": "instruction"}
    (conflict,) = find_conflicts(decode_settings(asked | {"scaffold": scaffold}))
    assert "nothing would be relabelled" in conflict
    scaffold["shown"] = "nothing"
    assert find_conflicts(decode_settings(asked | {"scaffold": scaffold})) == []
