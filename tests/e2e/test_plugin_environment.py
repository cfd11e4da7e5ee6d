"""An environment and a renderer that other packages bring: installed, named, checked, and played in a real Chromium."""

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from hindcast.actors.environments.browser import BrowserHost
from hindcast.actors.environments.plugin import DEMONSTRATORS
from hindcast.actors.judges.rules import RuleJudge
from hindcast.actors.judges.strict import StrictJudge
from hindcast.app.cli import app
from hindcast.app.demonstrations.scripted import demonstrate, solvable, solve
from hindcast.app.plugins import find_plugins, plugins_in_use
from hindcast.app.settings.configuration import resolve
from hindcast.app.system.sites import sites_with, task_sources
from hindcast.core.domain.action import Action
from hindcast.core.errors import JudgeUnavailable, PluginError, SettingsError
from hindcast.core.prompts.rendering import RENDERERS
from hindcast.core.settings.schema import Settings
from stories.example_plugins import forget, install

pytestmark = pytest.mark.browser

MODULES = ("hindcast_quiz", "hindcast_markdown")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder that both examples are installed in."""
    folder = tmp_path / "site"
    for example in ("quiz", "markdown"):
        install(example, folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("HINDCAST_HOME", str(tmp_path / "home"))
    forget(*MODULES)
    yield folder
    monkeypatch.undo()
    forget(*MODULES)


def settings_with(environment: str, *overrides: str) -> Settings:
    named = [f"curriculum.environments={json.dumps([environment])}", *overrides]
    return resolve(environment={}, overrides=named).settings


async def test_task_solve_wins_every_family(installed: Path) -> None:
    settings = settings_with("quiz", "sites.options={quiz={largest=3}}")
    families = solvable("quiz", (), settings)
    won = {one.family: one.won async for one in solve("quiz", families, episodes=2, settings=settings)}
    assert won == {"count": 2, "press": 2}


def test_the_command_opens_an_environment_that_no_setting_names(installed: Path) -> None:
    chosen = ["--environment", "quiz", "--family", "press", "--episodes", "1"]
    result = CliRunner().invoke(app, ["task", "solve", *chosen, "--json"])
    assert result.exit_code == 0, result.output
    (found,) = json.loads(result.stdout.splitlines()[-1])["families"]
    assert (found["family"], found["won"]) == ("press", 1)
    unknown = CliRunner().invoke(app, ["task", "solve", "--environment", "quizz"])
    assert isinstance(unknown.exception, PluginError)
    assert "the nearest is quiz" in str(unknown.exception)


@pytest.mark.parametrize("name", ["quiz", "hindcast_quiz:ENVIRONMENT"])
async def test_an_episode_is_played_rendered_and_judged_by_the_plugins(installed: Path, name: str) -> None:
    settings = settings_with(name, "actors.renderer=markdown/1")
    source, judge = task_sources(settings)[name], RuleJudge()
    site = sites_with("http://127.0.0.1:9", "token", settings)[name]
    task = source.task("press", 1)
    async with BrowserHost(settings.actors) as host:
        world = await host.open_world(site)
        try:
            assert len(await demonstrate(world, task)) == task.goal["number"] + 1
            start = await world.reset(task)
            assert RENDERERS[settings.actors.renderer](start.observation.page).splitlines() == [
                "# Desk",
                "0",
                "- button: Add one [1]",
                "- link: Shelf [2]",
            ]
            first = DEMONSTRATORS[name, "press"](task, start.instruction, start.observation, ())
            assert (await world.step(first)).result == "ok"
            assert (await world.step(Action(name="Click", element=2))).result == "ok"
            evidence = await world.finish("done")
        finally:
            await world.close()
    assert (
        judge.evaluate(task, evidence).outcome == StrictJudge().evaluate(task, evidence).outcome == "failure"
    )
    assert (
        judge.evaluate(
            task, msgspec.structs.replace(evidence, probes={"count": str(task.goal["number"])})
        ).reward
        == 1
    )


def test_identities_are_recorded_and_the_commands_check_both(installed: Path) -> None:
    used = {
        (one.kind, one.name): one
        for one in plugins_in_use(settings_with("quiz", "actors.renderer=markdown/1"))
    }
    assert used["environments", "quiz"].distribution == "hindcast-quiz"
    assert used["renderers", "markdown/1"].distribution == "hindcast-markdown"
    for name in ("quiz", "markdown/1"):
        result = CliRunner().invoke(app, ["plugin", "check", name])
        assert result.exit_code == 0, result.output
    with pytest.raises(SettingsError, match=r"sites\.options of the environment 'quiz': .*`smallest`"):
        settings_with("quiz", "sites.options={quiz={smallest=3}}")
    with pytest.raises(
        SettingsError, match=r"sites\.options names 'quizz', which is not an environment of the run"
    ):
        settings_with("quiz", "sites.options={quizz={largest=3}}")


def test_what_is_wrong_with_an_environment_or_a_renderer_is_said(installed: Path) -> None:
    module = installed / "hindcast_quiz" / "__init__.py"
    module.write_text(module.read_text().replace("environment=self.name", 'environment="other"'))
    forget(*MODULES)
    (finding,) = find_plugins("environments", "quiz")
    assert finding.problems == ("its tasks name the environment 'other', not 'quiz'",)
    (installed / "raising.py").write_text(
        "from hindcast_quiz import ENVIRONMENT\n\n"
        "class Raising(type(ENVIRONMENT)):\n"
        "    def evaluate(self, task, evidence, answers): return evidence.probes['page']\n\n"
        "class Closed(type(ENVIRONMENT)):\n"
        "    def tasks(self, name, settings): return 1 / 0\n\n"
        "RAISING, CLOSED = Raising(), Closed()\n"
    )
    (finding,) = find_plugins(None, "raising:RAISING")
    assert "with empty probes" in finding.problems[-1]
    assert "KeyError: 'page' (" in finding.problems[-1]
    (finding,) = find_plugins(None, "raising:CLOSED")
    assert "ZeroDivisionError" in finding.problems[0]
    assert "raising.py:7)" in finding.problems[0]
    with pytest.raises(
        PluginError, match=r"raising:Raising is of the type ABCMeta; a plugin is one of: .*\(judges\)"
    ):
        find_plugins(None, "raising:Raising")
    renderer = installed / "hindcast_markdown.py"
    renderer.write_text(renderer.read_text().replace('return "\\n".join(', "return list("))
    forget(*MODULES)
    (finding,) = find_plugins("renderers", "markdown/1")
    assert finding.problems == ("it renders a page as a list, not as text",)


def test_a_missing_plugin_is_refused_with_the_nearest_name(installed: Path) -> None:
    with pytest.raises(SettingsError, match=r"curriculum\.environments.*'quizz'.*quiz"):
        settings_with("quizz")
    with pytest.raises(SettingsError, match=r"actors\.renderer.*'markdown/2'.*markdown/1"):
        settings_with("quiz", "actors.renderer=markdown/2")
    task = msgspec.structs.replace(
        task_sources(settings_with("quiz"))["quiz"].task("count", 1), environment="gone"
    )
    with pytest.raises(JudgeUnavailable, match="no evaluator for the environment 'gone'"):
        RuleJudge().evaluate(task, None)  # type: ignore[arg-type]


def test_eval_plays_the_environment_as_a_suite(installed: Path) -> None:
    result = CliRunner().invoke(app, ["eval", "--suite", "quiz", "--episodes", "2", "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout.splitlines()[-1])
    assert (report["suite"], report["episodes"], report["lost"]) == ("quiz", 2, 0)
