"""An engine that another package brings: named in settings, recorded, and opened for an actor that plays a step with it."""

import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from fakes.tiny_policy import write_tiny_policy
from fakes.virtual_time import run_virtually
from hindcast.actors.engines.base import SeeingEngine
from hindcast.app.plugins import find_plugins, plugins_in_use
from hindcast.app.runs.runs import RunHandle, create_run
from hindcast.app.settings.configuration import resolve
from hindcast.app.system.policy_servers import opened_engine
from hindcast.core.domain.sampling import Sampling
from hindcast.core.errors import PluginError, SettingsError
from hindcast.core.models.engine import Engine, EngineContext, EngineTraits, find_engine
from hindcast.events.catalogue import EpisodeEnded, StepTaken
from stories.actor_bench import Bench, requested
from stories.actor_bench import Engine as ScriptedEngine
from stories.example_plugins import forget, install

pytestmark = pytest.mark.torch

MODULE = "hindcast_logged"


@asynccontextmanager
async def opened_script(_: EngineContext) -> AsyncIterator[ScriptedEngine]:
    yield ScriptedEngine('do(action="Click", element="1")', 'exit(message="done")')


SCRIPTED = Engine(traits=EngineTraits(), open=opened_script)
BY_OBJECT = f"{__name__}:SCRIPTED"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder that the example is installed in."""
    folder = install("logged", tmp_path / "site")
    monkeypatch.syspath_prepend(folder)
    forget(MODULE)
    yield folder
    monkeypatch.undo()
    forget(MODULE)


def run_with(home: Path, *overrides: str) -> RunHandle:
    resolved = resolve(environment={}, overrides=["policy.engine=logged", *overrides])
    return create_run(resolved, name="r", home=home)


def test_an_actor_plays_steps_with_the_example_around_an_engine_named_as_module_and_object(
    installed: Path, tmp_path: Path
) -> None:
    file = tmp_path / "answers.jsonl"
    handle = run_with(tmp_path / "home", f'policy.options={{engine="{BY_OBJECT}", file="{file}"}}')

    async def main() -> None:
        bench = Bench()
        async with (
            bench.publisher("actor.1") as publisher,
            opened_engine(handle, bench.log, publisher) as engine,
        ):
            bench.engine = engine  # type: ignore[assignment]
            await bench.tell(requested())
            await bench.act()
        steps = await bench.facts(StepTaken)
        assert [step.result for step in steps] == ["ok", "exit"]
        (ended,) = await bench.facts(EpisodeEnded)
        assert (ended.reason, ended.steps) == ("exit", 2)
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        assert [line["text"] for line in lines] == [step.answer for step in steps]
        assert all(
            line["prompt_tokens"] == len(step.prompt_ids) // 4
            for line, step in zip(lines, steps, strict=True)
        )

    run_virtually(main())


async def test_the_example_samples_from_the_in_process_engine_what_that_samples_alone(
    installed: Path, tmp_path: Path
) -> None:
    file, policy = tmp_path / "answers.jsonl", write_tiny_policy(tmp_path / "policy")
    handle = run_with(tmp_path / "home", f"policy.base={policy}", f'policy.options={{file="{file}"}}')
    settings = handle.settings
    alone = settings.model_copy(
        update={"policy": settings.policy.model_copy(update={"engine": "in_process", "options": {}})}
    )
    sampling = Sampling(temperature=1.0, max_tokens=6, seed=3)
    answers = []
    for one in (settings, alone):
        context = EngineContext(
            folder=policy,
            settings=one,
            log_name=None,
            server_addresses=tuple,
            report=None,  # type: ignore[arg-type]
        )
        engine_plugin = find_engine(one.policy.engine)
        async with engine_plugin.open(context) as engine:
            answers.append(await engine.generate([1, 2, 3], sampling))
            assert isinstance(engine, SeeingEngine) == engine_plugin.traits.reads_pictures
    assert msgspec.to_builtins(answers[0]) == msgspec.to_builtins(answers[1])
    (line,) = map(json.loads, file.read_text().splitlines())
    assert (line["prompt_tokens"], line["answer_tokens"]) == (3, len(answers[0].token_ids))


def test_engines_are_recorded_with_their_identity_and_checked_with_the_others(installed: Path) -> None:
    chosen = resolve(environment={}, overrides=["policy.engine=logged"]).settings
    (used,) = [one for one in plugins_in_use(chosen) if one.kind == "engines"]
    assert (used.name, used.distribution, used.module, used.state_version) == (
        "logged",
        "hindcast-logged",
        MODULE,
        1,
    )
    found = find_plugins("engines")
    assert [one.name for one in found] == ["in_process", "logged", "vllm"]
    assert not [problem for one in found for problem in one.problems]
    (installed / f"{MODULE}.py").write_text("ENGINE = 3\n")
    forget(MODULE)
    (broken,) = find_plugins("engines", "logged")
    assert "it is a int, no hindcast.core.models.engine.Engine" in broken.problems


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        (
            ["policy.engine=loged"],
            "policy.engine: no installed package has a plugin 'loged' of engines.*logged",
        ),
        (
            ["policy.engine=logged", "policy.options={fil=2}"],
            r"policy\.options of policy\.engine = 'logged'.*`fil`",
        ),
        (["policy.options={file=2}"], r"policy\.options of policy\.engine = 'in_process'.*`file`"),
        (["policy.engine=logged", 'policy.options={engine="logged"}'], "is this engine itself"),
        (["policy.engine=logged", 'policy.options={engine="vllm"}'], "needs policy servers"),
        (
            ["policy.engine=logged", "actors.screenshot_observation=newest"],
            "contradicts policy.engine = 'logged': it does not read images",
        ),
    ],
)
def test_what_an_engine_cannot_do_is_refused_when_settings_are_made(
    installed: Path, overrides: list[str], why: str
) -> None:
    with pytest.raises(SettingsError, match=why):
        resolve(environment={}, overrides=overrides)


def test_a_run_whose_engine_is_gone_can_be_looked_at_and_not_started(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = run_with(tmp_path / "home")
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one != str(installed)])
    forget(MODULE)
    assert handle.settings.policy.engine == "logged"
    with pytest.raises(PluginError, match="no installed package has a plugin 'logged' of engines"):
        plugins_in_use(handle.settings)
