"""A plain Python function as a judge."""

import asyncio
from typing import Any

import pytest

from hindcast.actors.judges.base import judge_problems, reach_verdict
from hindcast.actors.judges.judged_episode import EpisodeTranscript, JudgedEpisode
from hindcast.actors.judges.plugin import JudgePlugin
from hindcast.actors.judges.reward_function import GIVEN, FunctionJudge, as_judge
from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.domain.task import Task
from hindcast.core.errors import PluginError
from stories.judge_story import EVIDENCE, TASK, judged_episode, page

TRANSCRIPT = EpisodeTranscript(instruction="Read it.", answers=("one", "two"), page=page(2))


def episode(task: Task = TASK, evidence: Evidence = EVIDENCE, *, kept: bool = True) -> JudgedEpisode:
    return judged_episode(task, evidence, transcript=TRANSCRIPT if kept else None)


async def judged(function: Any, given: JudgedEpisode | None = None) -> Judgment:
    judge = FunctionJudge("module:reward", function, renderer="lines/2")
    assert not judge_problems(judge, "module:reward")
    return (await reach_verdict(judge, given or episode(), timeout_s=5.0)).judgment


async def test_a_function_gets_what_its_parameters_name() -> None:
    seen: dict[str, Any] = {}

    def everything(**given: Any) -> bool:
        seen.update(given)
        return True

    assert (await judged(everything)).outcome == "success"
    assert seen.keys() == GIVEN.keys()
    assert (seen["task"], seen["goal"], seen["probes"]) == (TASK, TASK.goal, EVIDENCE.probes)
    assert (seen["instruction"], seen["answers"]) == ("Read it.", ("one", "two"))
    assert seen["text"].splitlines() == ["page Cart", "text word 0", "text word 1"]


async def test_a_function_that_reads_no_transcript_needs_none() -> None:
    assert (await judged(lambda answer: 0.25, episode(kept=False))).reward == 0.25
    assert (await judged(lambda answers: 0.25, episode(kept=False))).outcome == "undecided"


@pytest.mark.parametrize(
    ("returned", "outcome", "reward"),
    [
        (True, "success", 1.0),
        (0.49, "failure", 0.49),
        (0.5, "success", 0.5),
        (None, "undecided", 0.0),
        (1.5, "undecided", 0.0),
        ("1", "undecided", 0.0),
        (float("nan"), "undecided", 0.0),
    ],
)
async def test_what_a_function_returns(returned: Any, outcome: str, reward: float) -> None:
    found = await judged(lambda answer: returned)
    assert (found.outcome, found.reward) == (outcome, reward)


async def test_a_reason_is_kept_and_an_async_function_awaited() -> None:
    async def reward(answer: str | None, strictness: int = 2) -> tuple[float, str]:
        await asyncio.sleep(0)
        return 0.0, f"strictness {strictness}"

    assert (await judged(reward)).reason == "strictness 2"


async def test_an_error_leaves_the_episode_undecided_and_names_the_line() -> None:
    def reward(answers: tuple[str, ...]) -> float:
        return float(answers[7])

    found = await judged(reward)
    assert found.outcome == "undecided"
    assert "raised IndexError" in found.reason
    assert "test_reward_function.py:" in found.reason


def test_a_parameter_that_does_not_exist_is_refused_when_the_run_is_configured() -> None:
    def reward(anser: str) -> float:
        return 1.0

    with pytest.raises(PluginError, match=r"has the parameter 'anser', .*by these names alone: task: "):
        as_judge("module:reward", reward)
    with pytest.raises(
        PluginError, match=r"has the parameter 'answer', and gets its arguments by these names"
    ):
        as_judge("module:reward", lambda answer, /: 1.0)
    assert isinstance(as_judge("module:reward", lambda answer: 1.0), JudgePlugin)
    assert as_judge("module:name", "text") == "text"


def test_another_text_of_the_module_is_another_version(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = []
    for number, text in enumerate(("return 1.0", "return 0.5")):
        module = tmp_path / f"reward_{number}.py"
        module.write_text(f"def reward(answer):\n    {text}\n")
        found: dict[str, Any] = {}
        exec(compile(module.read_text(), str(module), "exec"), found)
        judge = FunctionJudge("module:reward", found["reward"], renderer="lines/2")
        versions.append(judge.identity.version)
    assert len(set(versions)) == 2
