"""The table of recipes: what it compares, what its rows are known by, and what its findings say."""

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from bench.recipes import running
from bench.recipes.claims import find
from bench.recipes.config import Claim, load_table
from bench.recipes.failures import failure_kind
from bench.recipes.paired import points
from bench.recipes.picture import curves, forest
from bench.recipes.report import report
from bench.recipes.results import LOST, WON, Measurement, Result, Results
from bench.recipes.running import identity_of, settings_of
from bench.recipes.training_run import TrainingFailed, read_story
from hindcast.app.cli import app
from hindcast.app.evaluation.evaluation import EvaluatedEpisode, EvaluatedStep
from hindcast.app.settings.configuration import resolve
from hindcast.app.system.broker import ensure_broker
from hindcast.core.errors import SettingsError
from hindcast.events.catalogue import BlobReleased, EpisodeRequested, RunForked
from stories.recorded_home import make_home
from stories.synthetic_run import a_run

pytestmark = pytest.mark.torch

DEFAULT_RUN = load_table(Path(__file__).parents[1] / "bench/recipes/default_run.toml")
CLAIM = Claim(name="x over y", ours="x", theirs="y", paper=1.5)
FAMILY = "f/g"


def measured(successes: int, episodes: int = 100, **others: object) -> Measurement:
    values = {
        "temperature": 1.0,
        "version": 4,
        "minutes": 2.0,
        "mean_steps": 1.0,
        "outcomes": {FAMILY: WON * successes + LOST * (episodes - successes)},
        "failures": {"wrong stop": episodes - successes},
    }
    return Measurement(**(values | others))  # type: ignore[arg-type]


def result(row: str, seed: int, successes: int, episodes: int = 100, **others: object) -> Result:
    both = tuple(measured(successes, episodes, temperature=one) for one in (1.0, 0.0))
    return Result(row=row, seed=seed, **({"identity": "0", "measurements": both} | others))  # type: ignore[arg-type]


def by_place(*results: Result) -> dict[tuple[str, int], Result]:
    return {(one.row, one.seed): one for one in results}


def played(*steps: tuple[str, str], end: str) -> EvaluatedEpisode:
    return EvaluatedEpisode("f", [EvaluatedStep(page, what) for page, what in steps], end, "failure")  # type: ignore[arg-type]


def test_the_repositorys_table_holds_together_and_every_row_has_settings() -> None:
    for table in (load_table(), DEFAULT_RUN):
        assert len(table.reported_seeds) >= 3
        assert not {*table.reported_seeds} & {*table.tuning_seeds}
        for row in table.rows:
            assert settings_of(table, row, seed=1).curriculum.families == table.families_of(row)
        assert len({identity_of(table, row) for row in table.rows}) == len(table.rows)


@pytest.mark.broker
async def test_minutes_of_a_row_that_plays_no_episode_begin_with_its_first_batch(tmp_path: Path) -> None:
    left_out = (EpisodeRequested, BlobReleased, RunForked)
    facts = [recorded for recorded in a_run(1, groups=6) if not isinstance(recorded.fact, left_out)]
    handle = await make_home(tmp_path / "home", facts)
    async with ensure_broker(handle.home):
        story = await read_story(handle)
    assert story.versions
    assert all(0 <= version.minutes < 60 for version in story.versions), "counted from 1970 they are millions"


def test_the_default_run_is_measured_as_it_comes() -> None:
    row = DEFAULT_RUN.row("default_run")
    as_it_comes = resolve(recipe=row.recipe, overrides=["run.seed=1"]).settings
    measured = settings_of(DEFAULT_RUN, row, seed=1)
    assert sorted(measured.curriculum.families) == sorted(as_it_comes.curriculum.families)
    alike = {"families": as_it_comes.curriculum.families}
    assert (
        measured.model_copy(update={"curriculum": measured.curriculum.model_copy(update=alike)})
        == as_it_comes
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("tuning_seeds = [1, 2]", "tuning_seeds = [31]"), "seed 31 is for tuning and reported"),
        (('ours = "webrl"', 'ours = "nobody"'), "'nobody', which is no row"),
        (("points = 1", "points = 1\ncolour = 3"), "colour"),
        (("points = 1", "points = ["), "is no table of recipes"),
    ],
)
def test_a_table_that_does_not_hold_together_is_refused(
    tmp_path: Path, change: tuple[str, str], words: str
) -> None:
    text = (Path(__file__).parents[2] / "tests/bench/recipes/table.toml").read_text()
    assert change[0] in text
    (tmp_path / "table.toml").write_text(text.replace(*change, 1))
    with pytest.raises(SettingsError, match=words):
        load_table(tmp_path / "table.toml")


def test_a_rows_identity_is_what_it_sets_the_base_policy_and_the_edition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = load_table()
    row = table.row("bc")
    known = identity_of(table, row)
    others = {
        identity_of(table, msgspec.structs.replace(row, set=(*row.set, "learner.learning_rate=9e-9"))),
        identity_of(msgspec.structs.replace(table, edition=table.edition + 1), row),
        identity_of(msgspec.structs.replace(table, episodes=table.episodes + 1), row),
    }
    as_by_default = msgspec.structs.replace(table, set=(*table.set, "judge.timeout_s=30"))
    assert identity_of(as_by_default, row) == known, "a setting at its default says nothing"
    monkeypatch.setattr("bench.recipes.running.policy_folder", lambda _name: Path(__file__).parent)
    assert len({known, identity_of(table, row), *others}) == 5


def test_a_result_is_found_under_its_own_settings_alone(tmp_path: Path) -> None:
    results = Results(tmp_path)
    kept = result("x", 1, 40)
    results.keep(kept)
    assert results.find("x", 1, "0") == kept
    assert results.find("x", 2, "0") is None
    assert results.find("x", 1, "1") is None
    assert results.find("x", 1, "0", parent_log="") == kept
    assert results.find("x", 1, "0", parent_log="another") is None
    next(tmp_path.glob("*.json")).write_text("{")
    with pytest.raises(SettingsError, match="is no result"):
        results.find("x", 1, "0")


def test_a_row_is_reported_also_if_its_parent_was_trained_anew_since(tmp_path: Path) -> None:
    """`find` compares it with rows of that parent alone."""
    table, results = load_table(), Results(tmp_path)
    for row, others in (("bc", {"log_digest": "new"}), ("bc_store", {"parent_log": "old"})):
        results.keep(result(row, 31, 40, identity=identity_of(table, table.row(row)), **others))
    kept = running.Runner(table, folder=tmp_path, results=results).kept(table.row("bc_store"), 31)
    assert kept is not None
    assert kept.parent_log == "old"


def test_a_claim_counts_only_seeds_that_both_rows_were_run_with() -> None:
    results = by_place(result("x", 1, 60), result("x", 2, 90), result("y", 1, 30))
    finding = find(CLAIM, results, (1, 2, 3), temperature=1.0)
    assert [*finding.pairs] == [1]
    assert finding.ratio.rate == pytest.approx(60.5 / 30.5)
    assert (finding.ratio.low, finding.verdict) == (0.0, "open"), "one seed has no spread"
    assert find(CLAIM, {}, (1,), temperature=1.0).verdict == "not run"


def test_rows_that_descend_from_different_runs_of_their_parent_are_not_compared() -> None:
    ours = result("x", 1, 60, parent_log="a", log_digest="b")
    for theirs, compared in (
        (result("y", 1, 30, log_digest="a"), True),
        (result("y", 1, 30, log_digest="c", parent_log="a"), True),
        (result("y", 1, 30, log_digest="z"), False),
        (result("y", 1, 30), True),
        (result("y", 1, 30, log_digest="z", home="runs/y"), True),  # it has no parent
    ):
        assert bool(find(CLAIM, by_place(ours, theirs), (1,), temperature=1.0).pairs) == compared


def test_tasks_without_a_verdict_on_either_side_are_left_out() -> None:
    ours = result("x", 1, 0, measurements=(measured(0, outcomes={FAMILY: "11-1", "only/ours": "1111"}),))
    theirs = result("y", 1, 0, measurements=(measured(0, outcomes={FAMILY: "1001"}),))
    (pair,) = find(CLAIM, by_place(ours, theirs), (1,), temperature=1.0).pairs.values()
    assert (pair.tasks, pair.ours, pair.theirs) == (3, 1.0, pytest.approx(2 / 3))


def test_a_claim_is_told_by_family_over_seeds() -> None:
    def row(name: str, seed: int, **outcomes: str) -> Result:
        return result(name, seed, 0, measurements=(measured(0, outcomes=outcomes),))

    results = by_place(
        row("x", 1, a="11", b="10"),
        row("y", 1, a="00", b="11"),
        row("x", 2, a="10", b="--"),
        row("y", 2, a="00", b="11"),
    )
    finding = find(CLAIM, results, (1, 2), temperature=1.0)
    assert {family: points(pairs).rate for family, pairs in finding.by_family.items()} == {
        "a": 0.75,
        "b": -0.5,
    }
    assert len(finding.by_family["b"]) == 1, "nobody judged b's tasks of seed 2"


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        ((60, 62, 58), (30, 31, 30), "holds"),
        ((36, 37, 36), (30, 31, 30), "direction holds"),
        ((50, 60, 30), (48, 40, 50), "open"),
        ((30, 31, 30), (60, 62, 58), "refuted"),
    ],
)
def test_what_a_ratio_says_of_a_claim(ours: tuple[int, ...], theirs: tuple[int, ...], verdict: str) -> None:
    rows = [result("x", seed, won) for seed, won in enumerate(ours)]
    rows += [result("y", seed, won) for seed, won in enumerate(theirs)]
    assert find(CLAIM, by_place(*rows), range(3), temperature=1.0).verdict == verdict


@pytest.mark.parametrize(("margin", "verdict"), [(5.0, "holds"), (2.0, "open")])
def test_a_claim_with_a_margin_holds_if_ours_is_hardly_worse(margin: float, verdict: str) -> None:
    claim = Claim(name="x as good as y", ours="x", theirs="y", margin=margin)
    rows = [result("x", seed, won) for seed, won in enumerate((49, 50, 51))]
    rows += [result("y", seed, won) for seed, won in enumerate((51, 50, 51))]
    # differences -2, 0, 0: mean -.67, Student's interval -.67 ± 4.303 * 1.155 / sqrt(3) = [-3.54, 2.20]
    found = find(claim, by_place(*rows), range(3), temperature=1.0)
    assert 100 * found.points.low == pytest.approx(-3.54, abs=0.01)
    assert found.verdict == verdict


@pytest.mark.parametrize(
    ("episode", "kind"),
    [
        (played(("a", "ok"), ("a", "exit"), end="exit"), "no attempt"),
        (played(end="exit"), "no attempt"),
        (played(("a", "ok"), ("b", "ok"), ("b", "ok"), ("b", "ok"), end="max_steps"), "stuck midway"),
        (played(("a", "ok"), ("b", "timeout"), ("b", "ok"), ("a", "exit"), end="exit"), "no recovery"),
        (played(("a", "ok"), ("b", "timeout"), ("c", "exit"), end="exit"), "wrong stop"),
        (played(("a", "ok"), ("b", "ok"), ("a", "ok"), end="max_steps"), "wrong stop"),
    ],
)
def test_failed_episodes_fall_to_four_kinds(episode: EvaluatedEpisode, kind: str) -> None:
    assert failure_kind(episode) == kind


def test_the_report_says_of_every_row_whether_it_was_run() -> None:
    table = load_table()
    ran = result("base", table.reported_seeds[0], 100, 300)
    text = report(table, by_place(ran), table.reported_seeds)
    assert f"| base | {ran.seed} | 1 | 33.3% | [28.2, 38.8] | 300 |" in text
    assert f"| base | {ran.seed} | 0 | 33.3% |" in text
    assert text.count("not run") >= 3 * (len(table.rows) - 1) + len(table.claims)
    assert "| base | 200 | 0% | 0% | 0% | 100% |" in text


def test_the_curves_have_a_line_per_seed_and_leave_out_what_was_not_trained() -> None:
    trained = [result("x<", seed, 50, updates=4, minutes=2.0) for seed in (1, 2)]
    text = curves([("x<", trained), ("base", [result("base", 1, 30)])], temperature=1.0)
    assert text.count("<polyline") == 2
    assert "x&lt;" in text
    assert "base" not in text


def test_the_forest_has_a_point_per_claim_that_was_run_and_the_papers_ratio() -> None:
    rows = [result("x", seed, 60 + seed) for seed in range(3)] + [result("y", seed, 30) for seed in range(3)]
    known = find(CLAIM, by_place(*rows), range(3), temperature=1.0)
    text = forest([known, find(CLAIM, {}, range(3), temperature=1.0)])
    assert (text.count("<circle"), text.count("-5 -6z")) == (1, 1)
    assert "x over y" in text


def test_a_row_that_misses_its_minutes_does_not_keep_the_others_from_being_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def late(name: str, overrides: Sequence[str], **_: object) -> None:
        tried.append(name)
        raise TrainingFailed(f"{name} did not end in time")

    monkeypatch.setattr(running, "train", late)
    rows = ("r1_zero", "bc")
    chosen = [part for row in rows for part in ("--row", row)]
    places = ["--folder", str(tmp_path), "--results", str(tmp_path)]
    said = CliRunner().invoke(
        app,
        ["bench", "recipes", *chosen, "--seed", "31", *places, "--json"],
        catch_exceptions=False,
    )
    assert said.exit_code == 0
    table = [row.name for row in load_table().with_parents(rows)]
    assert [name.partition("-")[0] for name in tried] == table
    (line,) = [line for line in said.stdout.splitlines() if line.startswith("{")]
    assert json.loads(line)["unfinished"] == [
        f"{row}, seed 31: {name} did not end in time" for row, name in zip(table, tried, strict=True)
    ]
