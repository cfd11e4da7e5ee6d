"""Judges that another package brings: named, checked, recorded, and refused in words."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hindcast.actors.judges.role import run_judge
from hindcast.actors.judges.rules import RuleJudge
from hindcast.actors.queue_worker import author_key
from hindcast.app.cli import app
from hindcast.app.plugins import find_plugins, plugins_in_use
from hindcast.app.runs.runs import list_runs
from hindcast.app.runs.selection import select_run
from hindcast.app.settings.configuration import resolve
from hindcast.app.system.judges import open_judges
from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.errors import PluginError, SettingsError
from hindcast.core.settings.endpoint import EndpointSettings
from hindcast.core.settings.schema import JudgeSettings, Settings
from hindcast.events.catalogue import EpisodeJudged, RunStarted
from hindcast.events.log.memory import MemoryLog
from hindcast.learner.verify.verify import verify
from hindcast.storage.blobs.store import BlobStore
from stories.example_plugins import forget, install
from stories.judge_story import NO_BLOBS, ended, publisher, requested
from stories.training_story import bench, events_of, learn, settings_with

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


def answered(answer: str) -> Evidence:
    return Evidence(answer=answer, final_url="http://shop/", probes={})


def with_brevity(name: str, **options: int) -> list[str]:
    entry = ",".join(f"{key}={value}" for key, value in options.items())
    return [f'judge.judges=["{name}"]', f'judge.options={{"{name}"={{{entry}}}}}']


@pytest.mark.parametrize("name", ["brevity", f"{JUDGE_MODULE}:JUDGE"])
async def test_the_example_judges_episodes_under_its_name_in_the_settings(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    settings = resolve(environment={}, overrides=with_brevity(name, most=3)).settings
    monkeypatch.setattr(RuleJudge, "evaluate", lambda *_: Judgment(outcome="success", reward=1.0, reason=""))
    log, stop = MemoryLog("r"), asyncio.Event()
    ends = [ended("ep_short", evidence=answered("yes")), ended("ep_long", evidence=answered("I think so"))]
    for number in range(2):  # the second judge process finds every verdict
        async with (
            publisher(log, f"judge.{number}") as mine,
            open_judges(settings.judge.judges, settings, BlobStore(tmp_path)) as judges,
            asyncio.TaskGroup() as tasks,
        ):
            for end in () if number else ends:
                await mine.publish(requested(end.episode), entity=end.episode)
                await mine.publish(end, entity=end.episode)
            queue = await log.open_queue(f"judges {number}", family="episode_end")
            judging = run_judge(
                log=log,
                publisher=mine,
                queue=queue,
                settings=settings,
                blobs=NO_BLOBS,
                stop=stop,
                judges=judges,
            )
            role = tasks.create_task(judging)
            await log.wait_for_growth(5, timeout_s=20)
            await asyncio.sleep(0.2)
            role.cancel()
    verdicts = [r.fact for r in await events_of(log) if isinstance(r.fact, EpisodeJudged)]
    said = {fact.episode: fact.judgment.outcome for fact in verdicts}
    assert (len(verdicts), said) == (2, {"ep_short": "success", "ep_long": "failure"})
    assert {(fact.judge.name, fact.judge.version) for fact in verdicts} == {(name, "1-2-3")}
    keys = {author_key(fact.episode, fact.judge) for fact in verdicts}
    assert all(key.count(".") == 2 for key in keys)


def test_what_is_wrong_with_a_judge_is_said_before_a_run_starts(installed: Path) -> None:
    def wrong(*overrides: str) -> str:
        with pytest.raises(SettingsError) as refused:
            resolve(environment={}, overrides=overrides)
        return str(refused.value)

    assert "judge.options of the judge 'brevity': Object contains unknown field `least`" in wrong(
        *with_brevity("brevity", least=1)
    )
    assert "judge.options names 'brevity', which is not in judge.judges" in wrong(
        with_brevity("brevity", most=1)[1]
    )
    assert "judge.judges names 'brevty', which is not a judge; the nearest is brevity" in wrong(
        "judge.judges=brevty"
    )
    assert f"the plugin '{MODULE}:ALGORITHM' is a Algorithm, no" in wrong(f"judge.judges={MODULE}:ALGORITHM")
    (installed / f"{JUDGE_MODULE}.py").write_text(
        "from hindcast.actors.judges.plugin import JudgePlugin\nJUDGE = JudgePlugin()\n"
    )
    forget(MODULE, JUDGE_MODULE)
    (finding,) = find_plugins("judges", "brevity")
    assert finding.problems == ("it needs either open or versions",)
    (finding,) = find_plugins(None, f"{MODULE}:ALGORITHM")
    assert (finding.kind, finding.problems) == ("algorithms", ())


async def test_a_judge_that_signs_with_another_name_is_refused(installed: Path, tmp_path: Path) -> None:
    file = installed / f"{JUDGE_MODULE}.py"
    file.write_text(file.read_text().replace("context.name", "'mine'"))
    forget(MODULE, JUDGE_MODULE)
    with pytest.raises(
        PluginError, match="the judge 'brevity' cannot be used: it signs its verdicts as 'mine'"
    ):
        async with open_judges(("brevity",), Settings(), BlobStore(tmp_path)):
            pass


def test_a_refused_start_leaves_no_run_and_its_name_is_free_once_the_mistake_is_mended(
    installed: Path, tmp_path: Path
) -> None:
    home, sound = tmp_path / "home", (installed / f"{JUDGE_MODULE}.py").read_text()

    def refused(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["start", "mine", *arguments], env={"HINDCAST_HOME": str(home)})
        assert result.exit_code != 0
        assert list_runs(home) == []
        return str(result.exception)

    assert "--until episodes=N counts" in refused("--recipe", "sft", "--until", "episodes=5")
    assert "--without bus: another machine cannot have this role" in refused("--without", "bus")
    (installed / f"{JUDGE_MODULE}.py").write_text(
        sound.replace("events.JudgeIdentity(name=name", "dict(name=name")
    )
    forget(MODULE, JUDGE_MODULE)
    said = refused("--set", "judge.judges=brevity")
    assert "judge.judges: the plugin 'brevity' cannot judge: its identity is {'name': 'brevity'" in said
    assert "`hindcast plugin check brevity`" in said
    (installed / f"{JUDGE_MODULE}.py").write_text(sound)
    forget(MODULE, JUDGE_MODULE)
    assert select_run(home, name="mine", overrides=["judge.judges=brevity"]).name == "mine"
    assert list_runs(home) == ["mine"]


HALF = """
from contextlib import asynccontextmanager
from hindcast.actors.judges.plugin import JudgePlugin
from hindcast.events.catalogue.verdict import JudgeIdentity

class Half:
    {0}

@asynccontextmanager
async def _open(context):
    yield {1}

JUDGE = JudgePlugin(open=_open)
"""
WHOLE = {
    "identity": 'identity = JudgeIdentity(name="brevity", version="1")',
    "asks_model": "asks_model = False",
    "judge": "async def judge(self, episode): ...",
}


@pytest.mark.parametrize(
    ("lacks", "problem"),
    [
        ("identity", "its identity is None, not a hindcast.events.catalogue.verdict.JudgeIdentity"),
        ("asks_model", "it does not say whether a model decides"),
        ("judge", "it has no `async def judge(self, episode)`"),
        ("opening", "it cannot be opened: KeyError: 1 ("),
    ],
)
def test_a_judge_that_lacks_a_part_is_found_by_the_check_and_refused_by_a_run(
    installed: Path, tmp_path: Path, lacks: str, problem: str
) -> None:
    body = "\n    ".join(line for name, line in WHOLE.items() if name != lacks)
    text = HALF.format(body, "{}[1]" if lacks == "opening" else "Half()")
    (installed / f"{JUDGE_MODULE}.py").write_text(text)
    forget(MODULE, JUDGE_MODULE)
    (finding,) = find_plugins("judges", "brevity")
    assert [problem in one for one in finding.problems] == [True], finding.problems

    async def open_it() -> None:
        async with open_judges(("brevity",), Settings(), BlobStore(tmp_path)):
            pass

    with pytest.raises(KeyError if lacks == "opening" else PluginError):
        asyncio.run(open_it())


async def test_the_judges_of_a_process_share_one_endpoint(tmp_path: Path) -> None:
    settings = Settings(endpoint=EndpointSettings(base_url="http://127.0.0.1:9/v1", model="m"))
    async with open_judges(("endpoint", "fuzzy"), settings, BlobStore(tmp_path)) as judges:
        assert vars(judges["endpoint"])["_endpoint"] is vars(judges["fuzzy"])["_endpoint"]


async def test_a_missing_judge_refuses_no_verification_and_no_training(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_with().model_copy(update={"judge": JudgeSettings(judges=("rules", "brevity"))})
    made = await bench(tmp_path, batches=2, settings=settings)
    started = (await events_of(made.log))[0].fact
    assert isinstance(started, RunStarted)
    assert [one.name for one in started.plugins if one.kind == "judges"] == ["rules", "brevity"]
    uninstall(installed, monkeypatch)
    assert (await learn(made, until=1)).updates == 1
    assert (await verify(made.log, made.blobs, policy=made.policy)).identical
    with pytest.raises(PluginError, match="'brevity' of judges"):
        plugins_in_use(settings)
