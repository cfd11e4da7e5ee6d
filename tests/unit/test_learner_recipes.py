"""Recipes and numerics: what a run starts from."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import torch

from hindcast.core.errors import SettingsError
from hindcast.core.plugins import own_names
from hindcast.core.rl.algorithm import ALGORITHMS, find_algorithm
from hindcast.core.settings.changes import decode_settings, merge
from hindcast.learner.numerics import configure, differences, fingerprint, processor
from hindcast.learner.recipes import DEFAULT, load_recipe, recipe_names

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_holds_only_settings_there_are(name: str) -> None:
    settings = decode_settings(load_recipe(name))
    assert find_algorithm(settings.learner.algorithm).check(settings) == []


def test_the_page_of_recipes_names_every_recipe_and_every_built_in_algorithm() -> None:
    page = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text()
    assert [name for name in (*recipe_names(), *own_names(ALGORITHMS)) if f"`{name}`" not in page] == []


def test_the_default_recipe_waits_for_groups_that_differ_and_anchors_the_policy() -> None:
    learner = decode_settings(load_recipe(DEFAULT)).learner
    assert (learner.algorithm, learner.loss_mean) == ("grpo", "nested")
    assert learner.options["group_batch"] >= 4
    assert learner.options["kl_coefficient"] > 0


def test_arpo_is_grpo_without_kl_with_an_asymmetric_clip_a_format_term_and_replay() -> None:
    settings = decode_settings(load_recipe("arpo"))
    learner = settings.learner
    assert (learner.algorithm, learner.options["kl_coefficient"], settings.curriculum.group_size) == (
        "grpo",
        0.0,
        8,
    )
    assert (learner.options["clip_low"], learner.options["clip_high"], learner.options["dual_clip"]) == (
        0.2,
        0.3,
        0.0,
    )
    assert (
        learner.options["format_penalty"],
        learner.options["success_replay"],
        learner.options["replay_memory"],
    ) == (1.0, "random", 8)
    assert learner.options["replay_correction"] == "behaviour"
    default = decode_settings(load_recipe(DEFAULT)).learner
    assert (default.options["success_replay"], default.options["format_penalty"]) == ("off", 0.0)


def test_webagent_r1_clones_first_and_then_compares_with_equal_clips() -> None:
    settings = decode_settings(load_recipe("webagent_r1"))
    learner = settings.learner
    assert (learner.algorithm, learner.loss_mean) == ("grpo", "nested")
    assert learner.options["clip_low"] == learner.options["clip_high"]
    assert learner.cloning_updates > 0 < settings.curriculum.demonstrations
    assert learner.options["kl_coefficient"] > 0
    assert learner.minibatches * learner.epochs > 1, "else the ratio is 1 and the clip inert"
    assert settings.actors.history == "compressed/1"


def test_an_unknown_recipe_is_a_worded_error_that_names_those_there_are() -> None:
    there_are = ", ".join(recipe_names())
    with pytest.raises(
        SettingsError, match=f"no recipe 'webrll'; the nearest is webrl; there are: {there_are}"
    ):
        load_recipe("webrll")


def test_changes_are_merged_section_by_section() -> None:
    base = {"learner": {"a": 1, "b": 2}, "run": {"seed": 1}}
    assert merge(base, {"learner": {"b": 3}}) == {"learner": {"a": 1, "b": 3}, "run": {"seed": 1}}
    assert base["learner"] == {"a": 1, "b": 2}


def test_a_fingerprint_says_what_decides_about_bits() -> None:
    found = fingerprint(3)
    assert found.threads == 3
    assert found.torch == torch.__version__
    assert found.cpu_capability == torch.backends.cpu.get_cpu_capability()
    assert all(value for name, value in msgspec.to_builtins(found).items() if name != "details")
    other = msgspec.structs.replace(found, torch="2.12.1", threads=1)
    assert differences(other, found) == ["threads 1 then, 3 now", f"torch 2.12.1 then, {found.torch} now"]
    assert differences(found, found) == []


def test_configuring_fixes_threads_and_kernels_and_may_be_done_again() -> None:
    before = torch.get_num_threads()
    try:
        configure(1)
        configure(1)
        assert torch.get_num_threads() == 1
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.set_num_threads(before)


def test_the_planning_and_folding_part_needs_no_torch() -> None:
    code = "import sys, hindcast.learner.batch_plan, hindcast.learner.retention, hindcast.learner.recipes; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_the_processor_is_named_by_vendor_family_and_model(tmp_path: Path) -> None:
    table = tmp_path / "cpuinfo"
    table.write_text(
        "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 207\nmodel name\t: X\n\n"
        "processor\t: 1\nvendor_id\t: Other\n"
    )
    assert processor(table) == "GenuineIntel 6/207"
    assert processor(tmp_path / "missing")
    assert fingerprint(1).processor == processor(Path("/proc/cpuinfo"))


def test_a_processor_that_was_not_noted_counts_as_another() -> None:
    now = fingerprint(1)
    (said,) = differences(msgspec.structs.replace(now, processor=""), now)
    assert said == f"processor not noted then, {now.processor} now"
