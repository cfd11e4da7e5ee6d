"""A recipe changed while its run goes on: what is refused, what holds from where, and who said so."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from hindcast.app.cli import app as cli
from hindcast.app.runs.recipe_change import CHANGEABLE, change_recipe, recorded_settings, resolve_change
from hindcast.app.settings.configuration import Layer, fields, flatten, from_override
from hindcast.core.errors import SettingsError
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import RecipeChanged, UpdateApplied
from hindcast.events.log.memory import MemoryLog
from hindcast.learner.verify.verify import verify
from hindcast.storage.readmodel.outcome_counts import WATCHED, FamilyPoint, retained, stretches
from stories.forged_log import audited
from stories.forging import all_of
from stories.recorded_home import make_home
from stories.synthetic_run import a_run, recorded_run
from stories.training_story import Told, bench, learn, settings_with, tell

pytestmark = pytest.mark.torch

VALUES = flatten(Settings().model_dump(mode="json"), "the run")


def layers(*texts: str) -> list[Layer]:
    return [from_override(text) for text in texts]


def test_a_change_says_what_held_before_and_what_holds_now() -> None:
    found = resolve_change(
        VALUES, layers("learner.options.kl_coefficient=0.1", "learner.options.clip_low=0.2"), recipe="mgrpo"
    )
    assert found == {"learner.options.kl_coefficient": (0.01, 0.1)}, "what keeps its value is no change"


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (("learner.options.kl_coefficient=-1",), "learner.options.kl_coefficient = -1"),
        (("learner.options.kl_coefficient=0.01",), "nothing would change: learner.options.kl_coefficient"),
        (("learner.options.dual_clip=0.5",), "learner.options.dual_clip = 0.5 must be above 1"),
        (("learner.orm_every=8",), "judge.judges lacks orm"),
    ],
)
def test_the_whole_is_checked_before_anything_is_recorded(texts: tuple[str, ...], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        resolve_change(VALUES, layers(*texts), recipe="mgrpo")


def test_everything_that_can_change_is_a_setting_that_one_process_reads() -> None:
    assert set(fields()) >= CHANGEABLE
    fixed = {
        "learner.algorithm",
        "learner.options.group_batch",
        "learner.max_staleness",
        "learner.threads",
        "learner.options.format_penalty",
        "learner.orm_held_out",
        "learner.orm_truth",
        "learner.critic_heads",
        "curriculum.environments",
        "curriculum.group_size",
        "curriculum.max_running",
        "evolution.generator",
    }
    assert fixed <= set(fields())
    assert not fixed & CHANGEABLE
    assert {key.partition(".")[0] for key in CHANGEABLE} == {
        "learner",
        "curriculum",
        "evaluation",
        "evolution",
    }


async def test_what_holds_is_looked_up_from_the_last_fact_back() -> None:
    log = MemoryLog("r_test")
    story = await bench_facts(log)
    now = await recorded_settings(log)
    assert now.values["learner.options.clip_low"] == 0.3
    assert now.values["learner.options.clip_high"] == 0.5
    assert now.values["learner.options.group_batch"] == 2
    assert now.last == story


async def bench_facts(log: MemoryLog) -> int:
    """A start, two changes; the later one wins."""
    _, history = await recorded_run(groups=1)
    started = history[0].fact
    begun = msgspec.structs.replace(started, settings=settings_with().model_dump(mode="json"))
    first = RecipeChanged(author="a", reason="", changes={"learner": {"clip_low": 0.1, "clip_high": 0.5}})
    second = RecipeChanged(author="b", reason="", changes={"learner": {"clip_low": 0.3}})
    await tell(log, [Told("app", "r_test", begun)])
    await tell(log, [Told("change", "r_test", first)])
    await tell(log, [Told("change", "r_test", second)])
    return (await log.identity()).last


async def test_the_learner_follows_from_its_next_batch_on_and_all_of_it_verifies(tmp_path: Path) -> None:
    made = await bench(tmp_path, batches=2)
    await learn(made, until=2)
    changed = RecipeChanged(author="me", reason="too hot", changes={"learner": {"learning_rate": 1e-5}})
    await tell(made.log, [Told("change", made.log.run, changed)])
    await learn(made, until=4)
    rates = [r.fact.metrics["learning_rate"] for r in await all_of(made, UpdateApplied)]  # type: ignore[attr-defined]
    assert rates == [1.5e-3, 3e-3, 1e-5, 1e-5]
    report = await verify(made.log, made.blobs, policy=made.policy)
    assert report.first_divergence is None
    assert report.updates == 4
    assert (await audited(made)).defects == ()


async def test_a_change_is_recorded_shown_and_refused_where_it_must_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = await make_home(tmp_path / "home", a_run(groups=1))
    with pytest.raises(
        SettingsError, match=r"learner.options.group_batch cannot change in a running run.*hindcast fork"
    ):
        await change_recipe(handle, ["learner.options.group_batch=3"], author="me", reason="")
    with pytest.raises(SettingsError, match="nothing is to be changed"):
        await change_recipe(handle, [], author="me", reason="")
    with pytest.raises(
        SettingsError, match=r"curriculum\.families names 'store/fly': store has no such family"
    ):
        await change_recipe(handle, ['curriculum.families=["store/fly"]'], author="me", reason="")
    changed = await change_recipe(
        handle, ["learner.options.kl_coefficient=0.25"], author="me", reason="it drifts"
    )
    assert changed.changes["learner.options.kl_coefficient"][1] == 0.25
    async with handle.connect_log() as log:
        assert (await log.identity()).last == changed.position
        assert (await recorded_settings(log)).values["learner.options.kl_coefficient"] == 0.25
    monkeypatch.setenv("HINDCAST_HOME", str(tmp_path / "home"))
    again = await asyncio.to_thread(
        CliRunner().invoke, cli, ["ctl", "set", "learner.options.kl_coefficient=0.25"]
    )
    assert isinstance(again.exception, SettingsError), again.output
    rebuilt = await asyncio.to_thread(CliRunner().invoke, cli, ["rebuild"])
    assert rebuilt.exit_code == 0, rebuilt.output
    shown = await asyncio.to_thread(CliRunner().invoke, cli, ["run", "show"])
    assert (
        f"changed at position {changed.position}: me set learner.options.kl_coefficient = 0.25: it drifts"
        in shown.output
    )


def test_the_present_stretch_is_compared_with_the_best_before_it() -> None:
    points = [
        FamilyPoint(0, 12, 40),
        FamilyPoint(1, 20, 20),
        FamilyPoint(2, 8, 10),
        FamilyPoint(3, 30, 30),
        FamilyPoint(4, 9, 30),
    ]
    found = retained("store/buy", points)
    assert found is not None
    assert (found.present.first_version, found.present.successes, found.present.judged) == (4, 9, 30)
    assert (found.best.first_version, found.best.last_version, found.best.rate) == (3, 3, 1.0)
    assert found.change[0] == pytest.approx(-0.7)
    assert found.change[2] < 0
    assert [(one.first_version, one.last_version) for one in stretches(points)] == [
        (4, 4),
        (3, 3),
        (1, 2),
        (0, 0),
    ]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 20)), max_size=30))
def test_stretches_share_no_version_and_each_has_enough(counts: list[tuple[int, int]]) -> None:
    points = [FamilyPoint(version, min(good, n), n) for version, (good, n) in enumerate(counts)]
    found = stretches(points)
    versions = [v for one in found for v in range(one.first_version, one.last_version + 1)]
    assert len(versions) == len(set(versions))
    assert all(one.judged >= WATCHED for one in found)
    left = sum(point.judged for point in points) - sum(one.judged for one in found)
    assert 0 <= left < WATCHED
    assert (retained("f", points) is None) == (len(found) < 2)
