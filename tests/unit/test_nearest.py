"""Suggestions for names that are not known."""

from collections.abc import Collection
from pathlib import Path
from typing import get_args

import pytest
import typer
from typer.testing import CliRunner

from hindcast.app.cli import COMMANDS, app
from hindcast.app.cli.evaluate import suites
from hindcast.app.cli.options import EpisodeState
from hindcast.app.cli.suggestions import with_nearest
from hindcast.app.exports import EXPORTERS
from hindcast.app.settings.configuration import resolve
from hindcast.app.system.system import ROLES
from hindcast.core.errors import ModelFileError, SettingsError
from hindcast.core.models.folders import folder_advice
from hindcast.core.models.model_files import require_files
from hindcast.core.models.tokenizer import load_tokenizer
from hindcast.core.plugins import plugin_names
from hindcast.core.text.nearest import ALIASES, advice, nearest
from hindcast.events.registry import BY_NAME
from hindcast.learner.recipes import recipe_names
from tools.docs_site.references import commands

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("name", "known", "found"),
    [
        ("grpo", recipe_names(), "mgrpo"),
        ("MGRPO", recipe_names(), "mgrpo"),
        ("step.tken", BY_NAME, "step.taken"),
        ("leger", ["ledger", "prepare"], "ledger"),
    ],
)
def test_a_name_with_a_slip_finds_the_one_meant(name: str, known: list[str], found: str) -> None:
    assert nearest(name, known) == [found]
    assert advice(name, known).startswith(f"the nearest is {found}")


def test_nothing_alike_lists_what_there_is_and_a_long_list_is_cut() -> None:
    names = [f"word{number:02}" for number in range(30)]
    assert nearest("", names) == nearest("!?", names) == []
    assert advice("!?", names[:3]) == "there are: word00, word01, word02"
    assert advice("!?", names).endswith("word19 and 10 more")
    assert advice("!?", []) == "there are: none"
    assert advice("wrd07", names) == "the nearest is word07"


@pytest.mark.parametrize(
    ("name", "known", "found"),
    [
        ("bc", recipe_names(), "sft"),
        ("Behavior Cloning", recipe_names(), "sft"),
        ("rejection_sampling", recipe_names(), "filtered_bc"),
        ("rejection-sampling", recipe_names(), "filtered_bc"),
        ("PPO", recipe_names(), "mgrpo"),
        ("HER", recipe_names(), "hsl"),
        ("sil", recipe_names(), "self_imitation"),
        ("llm", plugin_names("judges"), "endpoint"),
        ("GPT-4", plugin_names("judges"), "endpoint"),
        ("reward_model", plugin_names("judges"), "orm"),
        ("workarena", suites(), "browsergym"),
        ("miniwob++", suites(), "miniwob"),
        ("huggingface", tuple(plugin_names(EXPORTERS)), "dataset"),
        ("csv", tuple(plugin_names(EXPORTERS)), "parquet"),
        ("trainer", ROLES, "learner"),
        ("rollout_worker", ROLES, "actor"),
        ("stop", COMMANDS, "ctl"),
        ("status", COMMANDS, "run"),
        ("done", get_args(EpisodeState), "ended"),
        ("grad_norm", ("loss", "kl", "gradient_norm"), "gradient_norm"),
    ],
)
def test_what_papers_and_other_tools_call_it_finds_our_name(
    name: str, known: Collection[str], found: str
) -> None:
    assert nearest(name, known) == [found]


def test_every_alias_means_something_that_there_is() -> None:
    metrics = {"entropy_estimate", "gradient_norm", "ratio_mean", "kl"}
    words = {word for call, _ in commands() for word in call.split()[1:]}
    algorithms = set(plugin_names("algorithms"))
    states = {*get_args(EpisodeState), "success", "failure", "online", "demonstration", "evaluation"}
    known = {
        *recipe_names(),
        *plugin_names("judges"),
        *suites(),
        "web",
        *plugin_names(EXPORTERS),
        *ROLES,
        *words,
        *algorithms,
        *states,
        *metrics,
    }
    for name, meant in ALIASES.items():
        assert set(meant) <= known, f"{name} stands for {meant}"
        assert name == "_".join(name.split()).lower()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("verfy",), "No such command 'verfy'; the nearest is verify."),
        (("stop",), "the nearest is ctl"),
        (("run", "ls"), "No such command 'ls'; the nearest is list; there are: compare, list, show."),
        (("ctl", "stop"), "the nearest is drain"),
        (("export", "--to", "x", "--format", "csv"), "; the nearest is parquet;"),
        (("episode", "list", "--state", "done"), "; the nearest is ended."),
        (("episode", "list", "--outcome", "sucess"), "; the nearest is success."),
    ],
    ids=" ".join,
)
def test_a_command_line_with_an_unknown_word_names_the_nearest(words: tuple[str, ...], said: str) -> None:
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())


def test_every_group_of_commands_suggests() -> None:
    whole = typer.main.get_command(app)
    for name in COMMANDS:
        group = whole.commands[name]  # type: ignore[attr-defined]
        if hasattr(group, "commands"):
            result = CliRunner().invoke(app, [name, "nonesuch"])
            if "nonesuch" in result.output:
                assert "there are: " in result.output or "the nearest is" in result.output, name


def test_what_the_parser_says_of_other_mistakes_stays() -> None:
    assert with_nearest("'x' is not a valid integer.") == "'x' is not a valid integer."
    assert with_nearest("'zzz' is not one of 'a', 'b'.") == "'zzz' is not one of 'a', 'b'."


def test_a_setting_with_an_unknown_word_names_the_nearest() -> None:
    with pytest.raises(SettingsError, match="the nearest is grpo"):
        resolve(environment={}, overrides=["learner.algorithm=ppo"])


def test_the_id_of_a_model_on_a_hub_says_how_to_download_it(tmp_path: Path) -> None:
    hub = Path("Qwen/Qwen2.5-7B")
    for reads in (require_files, load_tokenizer):
        with pytest.raises(
            ModelFileError, match=r"hf download Qwen/Qwen2\.5-7B --local-dir models/Qwen2\.5-7B"
        ):
            reads(hub)
        with pytest.raises(ModelFileError, match=r"no model folder .*none: give the path"):
            reads(tmp_path / "none")
    assert "hf download" not in folder_advice(Path("./Qwen/Qwen2.5-7B/weights"))
