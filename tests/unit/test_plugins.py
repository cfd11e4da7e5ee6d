"""Algorithms that another package brings: found, named as module:object, checked, recorded, and refused in words."""

import json
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from math import log
from pathlib import Path

import msgspec
import pytest
import torch
from factories import terms
from typer.testing import CliRunner

import hindcast.core.plugins as plugins
from hindcast.app.attach.bridge import Bridge, bridge_target, check_bridge
from hindcast.app.cli import app
from hindcast.app.plugins import find_plugins, plugins_in_use
from hindcast.app.runs.runs import create_run, open_run
from hindcast.app.settings.configuration import resolve
from hindcast.core.errors import PluginError, SettingsError, error_and_place
from hindcast.core.plugins import PluginIdentity
from hindcast.core.rl.loss_normalization import EpisodeTokens
from hindcast.events.catalogue import BatchPlanned, RunStarted, UpdateApplied
from hindcast.learner import loop
from hindcast.learner.algorithms import loss_for
from hindcast.learner.algorithms.base import EpisodePart
from hindcast.learner.batch_plan import plan
from hindcast.learner.buffer.snapshots import FoldedLog, source_of
from hindcast.learner.buffer.state import BufferState
from hindcast.learner.verify.verify import verify
from stories.example_plugins import forget, install
from stories.forged_log import audited
from stories.training_story import Bench, Member, bench, events_of, folded, learn, settings_with, tell

pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[2]
MODULE, JUDGE_MODULE = "hindcast_rloo", "hindcast_brevity"


def uninstall(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one != str(folder)])
    forget(MODULE, JUDGE_MODULE)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder that the examples are installed in."""
    folder = tmp_path / "site"
    for name in ("rloo", "brevity"):
        install(name, folder)
    monkeypatch.syspath_prepend(folder)
    forget(MODULE, JUDGE_MODULE)
    yield folder
    monkeypatch.undo()
    forget(MODULE, JUDGE_MODULE)


async def trained(folder: Path) -> Bench:
    """Two updates of the example."""
    made = await bench(folder, batches=1, settings=settings_with(algorithm="rloo", options={"scale": 0.5}))
    assert (await learn(made, until=2)).updates == 2
    return made


async def test_the_example_trains_and_verifies_as_a_built_in_algorithm_does(
    installed: Path, tmp_path: Path
) -> None:
    made = await trained(tmp_path)
    facts = [recorded.fact for recorded in await events_of(made.log)]
    (plan,) = (fact for fact in facts if isinstance(fact, BatchPlanned))
    assert plan.algorithm == "rloo"
    # rewards 1, 0, 1, 0: the others' mean is 1/3 or 2/3, and the scale is a half
    assert [round(one.advantage, 6) for one in plan.episodes[:4]] == [0.333333, -0.333333] * 2
    assert sum(isinstance(fact, UpdateApplied) for fact in facts) == 2
    report = await verify(made.log, made.blobs, policy=made.policy)
    assert report.identical
    started = facts[0]
    assert isinstance(started, RunStarted)
    (used,) = [one for one in started.plugins if one.kind == "algorithms"]
    assert (used.kind, used.name, used.distribution, used.version) == (
        "algorithms",
        "rloo",
        "hindcast-rloo",
        "1.0.0",
    )
    assert (used.module, used.state_version, len(used.source)) == (MODULE, 1, 64)


async def test_the_example_trains_with_rehearsal_under_the_default_recipe_and_the_audit_is_clean(
    installed: Path, tmp_path: Path
) -> None:
    recipe = resolve(environment={}, overrides=["learner.algorithm=rloo"]).settings.learner
    assert recipe.options["rehearsal_episodes"] == 6
    learner = {"minibatches": recipe.minibatches, "epochs": recipe.epochs}
    options = recipe.options | {"rehearsal_memory": 5}
    settings = settings_with(algorithm="rloo", options=options, **learner)
    made = await bench(tmp_path, batches=4, settings=settings)
    each = recipe.minibatches * recipe.epochs
    assert (await learn(made, until=4 * each)).updates == 4 * each
    facts = [recorded.fact for recorded in await events_of(made.log)]
    plans = [fact for fact in facts if isinstance(fact, BatchPlanned)]
    rehearsed = [one for plan in plans for one in plan.episodes if one.rehearsed]
    members = Counter((plan.batch, one.group) for plan in plans for one in plan.episodes if one.rehearsed)
    assert 1 in members.values(), "a group of which one member is rehearsed has nothing to compare"
    assert {one.advantage for one in rehearsed} == {0.0}
    updates = [fact for fact in facts if isinstance(fact, UpdateApplied)]
    assert updates[-1].metrics["rehearsal_loss"] > 0
    assert updates[-1].metrics["kl"] > 0
    assert (await audited(made)).clean
    assert (await verify(made.log, made.blobs, policy=made.policy)).identical


async def test_the_example_compares_rewards_with_their_format_terms(installed: Path, tmp_path: Path) -> None:
    options = {"group_batch": 1, "format_penalty": 0.5}
    settings = settings_with(algorithm="rloo", options=options)
    made = await bench(tmp_path, batches=0, settings=settings)
    await tell(made.log, made.story.group(Member(1.0, 1, unparsable=True), Member(1.0, 1)))
    planned = plan(await folded(made.log), settings)
    assert planned is not None
    assert [one.advantage for one in planned.episodes] == [-0.5, 0.5]


async def test_a_plan_that_compares_a_rehearsed_episode_is_refused_and_the_audit_counts_them(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = installed / f"{MODULE}.py"
    wrong = "msgspec.structs.replace(one, advantage=0.5) if one.rehearsed else one"
    file.write_text(file.read_text().replace("episodes.append(one)", f"episodes.append({wrong})"))
    forget(MODULE, JUDGE_MODULE)
    options = {"rehearsal_episodes": 2}
    made = await bench(tmp_path, batches=1, settings=settings_with(algorithm="rloo", options=options))
    with pytest.raises(PluginError) as refused:
        await learn(made, until=2)
    for words in ("batch 0", "'rloo' (module hindcast_rloo)", "ep_group_2_", "advantage 0.5", "unchanged"):
        assert words in str(refused.value)
    assert not any(isinstance(recorded.fact, BatchPlanned) for recorded in await events_of(made.log))
    with monkeypatch.context() as patch:  # as such a run was recorded before plans were checked
        patch.setattr(loop, "require_consistent", lambda planned, settings: None)
        await learn(made, until=2)
    (defect,) = (await audited(made)).defects
    assert defect.what == "algorithm 'rloo' gave an advantage to 4 rehearsed episodes of batch 0"
    assert "0.5" in defect.found
    assert "The planner of 'rloo'" in defect.meaning
    assert (await verify(made.log, made.blobs, policy=made.policy)).identical


async def test_advantages_other_than_those_that_the_traits_promise_are_refused(
    installed: Path, tmp_path: Path
) -> None:
    file = installed / f"{MODULE}.py"
    file.write_text(file.read_text().replace("compares=", "group_advantages=True, compares="))
    forget(MODULE, JUDGE_MODULE)
    made = await bench(tmp_path, batches=1, settings=settings_with(algorithm="rloo"))
    with pytest.raises(PluginError, match="set group_advantages=False"):
        await learn(made, until=2)


def test_the_examples_loss_imitates_rehearsed_episodes_and_compares_the_others(installed: Path) -> None:
    options = {"rehearsal_coefficient": 0.5, "kl_coefficient": 0.1}
    loss = loss_for(settings_with(algorithm="rloo", options=options).learner)
    shares, cloning = loss.shares(
        [
            EpisodePart(EpisodeTokens("g", (2, 4)), succeeded=True),
            EpisodePart(EpisodeTokens("g", (3,)), succeeded=False),
            EpisodePart(EpisodeTokens("h", (5, 2)), succeeded=True, rehearsed=True),
        ]
    )
    assert shares == [0.5, 0.5, 0.5, 0.0, 0.0]
    assert cloning == pytest.approx([0.0, 0.0, 0.0, 0.5 / 7, 0.5 / 7])
    log_probs = torch.tensor([log(0.5)], requires_grad=True)
    compared = terms(advantage=2.0, behaviour=[0.5], proximal=[0.5], reference=[0.25], share=0.5)
    found = loss.sample_loss(log_probs, compared)
    # -0.5 * 2 log(1/2), and 0.5 * 0.1 (r - log r - 1) with r = 0.25 / 0.5
    assert float(found.loss.detach()) == pytest.approx(log(2) + 0.05 * (log(2) - 0.5), rel=1e-5)
    old = terms(advantage=0.0, behaviour=[0.5], proximal=[0.5], share=0.0, cloning_share=0.25)
    found = loss.sample_loss(log_probs, old)
    assert (found.policy, found.cloning) == pytest.approx((0.0, 0.25 * log(2)))


async def test_without_the_plugin_verify_and_resume_refuse_in_words(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await trained(tmp_path)
    uninstall(installed, monkeypatch)
    missing = "no installed package has a plugin 'rloo' of algorithms"
    with pytest.raises(PluginError, match=missing):
        await verify(made.log, made.blobs, policy=made.policy)
    with pytest.raises(PluginError, match=missing):
        await learn(made, until=4)
    (defect,) = (await audited(made)).defects
    assert (defect.event, defect.expected) == ("batch.planned", "a plugin 'rloo' of algorithms")
    assert missing in defect.found
    assert "Install the plugin" in defect.meaning


async def test_another_state_version_is_refused_and_another_source_only_named(
    installed: Path, tmp_path: Path
) -> None:
    made = await trained(tmp_path)
    file = installed / f"{MODULE}.py"
    source = file.read_text()
    file.write_text(source + "\n# a remark\n")
    forget(MODULE, JUDGE_MODULE)
    assert (await verify(made.log, made.blobs, policy=made.policy)).identical
    file.write_text(source.replace("policy = -terms.share", "policy = -1.5 * terms.share"))
    forget(MODULE, JUDGE_MODULE)
    report = await verify(made.log, made.blobs, policy=made.policy)
    assert report.first_divergence is not None
    assert report.first_divergence.event == "update.applied"
    assert "another source of these plugins: rloo (hindcast-rloo 1.0.0, now" in report.first_divergence.cause
    file.write_text(source.replace("    options=Rloo", "    state_version=2,\n    options=Rloo"))
    forget(MODULE, JUDGE_MODULE)
    with pytest.raises(
        PluginError, match=r"state version 1 of the plugin 'rloo'.* state version 2 is installed"
    ):
        await verify(made.log, made.blobs, policy=made.policy)


def test_settings_name_a_plugin_by_its_entry_point_or_as_module_and_object(installed: Path) -> None:
    for name in ("rloo", f"{MODULE}:ALGORITHM"):
        chosen = resolve(
            recipe="webagent_r1",
            environment={},
            overrides=[f"learner.algorithm={name}", "learner.options={scale=2}"],
        )
        assert chosen.settings.learner.algorithm == name
        assert [one.name for one in plugins_in_use(chosen.settings) if one.kind == "algorithms"] == [
            "sft",
            name,
        ]
    with pytest.raises(SettingsError, match=r"'\.x:y' is no module:object"):
        resolve(recipe="arpo", environment={}, overrides=["learner.algorithm=.x:y"])
    with pytest.raises(
        SettingsError, match=r"learner\.algorithm = 'rloo' has no option 'scal'; the nearest is scale"
    ):
        resolve(
            recipe="arpo", environment={}, overrides=["learner.algorithm=rloo", "learner.options={scal=2}"]
        )
    with pytest.raises(SettingsError, match=r"learner\.algorithm = 'grpo' has no option 'scale'"):
        resolve(recipe="arpo", environment={}, overrides=["learner.options={scale=2}"])


def test_a_snapshot_serves_as_long_as_the_plugins_source_is_the_same(installed: Path) -> None:
    kept = FoldedLog(BufferState(settings=settings_with(algorithm="rloo")), {}, source_of("rloo"))
    assert kept.is_current
    assert FoldedLog(BufferState(settings=settings_with()), {}).is_current
    file = installed / f"{MODULE}.py"
    file.write_text(file.read_text() + "\n# a remark\n")
    forget(MODULE, JUDGE_MODULE)
    assert not kept.is_current


def test_a_run_whose_plugin_is_gone_can_be_looked_at_and_not_started(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    create_run(resolve(environment={}, overrides=["learner.algorithm=rloo"]), name="r", home=home)
    uninstall(installed, monkeypatch)
    assert open_run("r", home=home).settings.learner.algorithm == "rloo"
    result = CliRunner().invoke(app, ["start", "r"], env={"HINDCAST_HOME": str(home)})
    assert isinstance(result.exception, PluginError)
    assert "no installed package has a plugin 'rloo'" in str(result.exception)


def test_the_commands_list_and_check_plugins(installed: Path) -> None:
    listed = json.loads(CliRunner().invoke(app, ["plugin", "list", "--json"]).stdout)["plugins"]
    assert {"grpo", "rloo", "webrl"} <= {one["name"] for one in listed}
    assert all(not one["problems"] for one in listed)
    (installed / f"{MODULE}.py").write_text("ALGORITHM = 3\n")
    forget(MODULE, JUDGE_MODULE)
    result = CliRunner().invoke(app, ["plugin", "check", "rloo"])
    assert result.exit_code == 1
    assert "it is a int, no hindcast.core.rl.algorithm.Algorithm" in result.stdout
    (installed / f"{MODULE}.py").write_text("import nothing_of_the_kind\n")
    forget(MODULE, JUDGE_MODULE)
    (finding,) = find_plugins("algorithms", "rloo")
    assert finding.identity is None
    assert "No module named 'nothing_of_the_kind'" in finding.problems[0]


def test_what_is_wrong_with_an_algorithm_is_said(installed: Path) -> None:
    file = installed / f"{MODULE}.py"
    file.write_text(
        file.read_text().replace('compares="groups"', 'compares="everyone"').replace("loss=Rloo", "loss=dict")
    )
    forget(MODULE, JUDGE_MODULE)
    (finding,) = find_plugins("algorithms", "rloo")
    assert "its traits are none: Invalid enum value 'everyone'" in finding.problems[0]
    assert finding.problems[1:] == ("its loss makes no hindcast.learner.algorithms.base.Loss",)


def test_an_error_that_torch_raises_is_placed_in_the_plugin_that_caused_it(installed: Path) -> None:
    file = installed / f"{MODULE}.py"
    lines = file.read_text().splitlines()
    number = next(index for index, line in enumerate(lines) if "weights = torch" in line)
    lines[number] = "        weights = torch.nn.functional.pad(log_probs, (1,), mode='no')"
    file.write_text("\n".join(lines))
    forget(MODULE, JUDGE_MODULE)
    loss = loss_for(settings_with(algorithm="rloo").learner)
    with pytest.raises(NotImplementedError) as raised:
        loss.sample_loss(torch.zeros(1), terms(advantage=1.0, behaviour=[0.5], proximal=[0.5]))
    assert raised.traceback[-1].path.name == "functional.py"
    assert error_and_place(raised.value) == (
        f"NotImplementedError: Unrecognised padding mode no ({file}:{number + 1})"
    )
    assert error_and_place(ValueError("a\nb")) == "ValueError: a b"


def test_two_packages_with_one_name_are_refused_and_no_package_replaces_a_built_in(installed: Path) -> None:
    other = installed / "other-2.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 2\n")
    (other / "entry_points.txt").write_text(
        "[hindcast.algorithms]\nrloo = other:ALGORITHM\ngrpo = other:ALGORITHM\n"
    )
    forget(MODULE, JUDGE_MODULE)
    with pytest.raises(
        PluginError, match="several packages have a plugin 'rloo' of algorithms: hindcast-rloo, other"
    ):
        plugins.load_plugin("algorithms", "rloo")
    assert plugins.identify_plugin("algorithms", "grpo").distribution == "hindcast"


def test_the_declared_built_ins_are_those_that_are_installed() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    installed = plugins.distribution("hindcast").entry_points
    for group, own in declared.items():
        assert {one.name: one.value for one in installed.select(group=group)} == own, "install again: make"


def test_an_identity_is_read_from_events_as_it_was_written() -> None:
    one = plugins.identify_plugin("algorithms", "grpo")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(one), type=PluginIdentity) == one


def test_bridges_importers_exporters_and_environments_are_listed_by_name() -> None:
    listed = json.loads(CliRunner().invoke(app, ["plugin", "list", "--json"]).stdout.splitlines()[-1])[
        "plugins"
    ]
    names = {
        kind: {one["name"] for one in listed if one["kind"] == kind}
        for kind in {one["kind"] for one in listed}
    }
    assert names["bridges"] == {"wandb", "trackio", "tensorboard"}
    assert {"atif", "inspect", "nemo-gym", "verifiers"} <= names["importers"]
    assert {"atif", "dataset", "inspect", "trl"} <= names["exporters"]
    assert {"mcp", "openenv", "store", "verifiers", "verifiers_taskset"} <= names["environments"]
    assert not [one for one in listed if one["kind"] == "bridges" and one["problems"]]


def test_a_bridge_whose_tool_is_missing_is_refused_with_the_command_that_installs_it() -> None:
    with pytest.raises(PluginError, match="the nearest is wandb"):
        bridge_target("wanb")
    lacking = Bridge(sends="curves", target="no_such_tool:consumer", package="no-such-tool")
    assert check_bridge(lacking) == [
        "its target is 'no_such_tool:consumer', and there is no such module",
        "its package is 'no-such-tool'; expected the name that is imported",
    ]
    assert bridge_target("tensorboard") == "hindcast.app.examples.tensorboard_bridge:consumer"
