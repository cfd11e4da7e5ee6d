"""A log that the real inspect-ai writes, imported."""

import asyncio
import gc
import math
from pathlib import Path
from typing import Any

import inspect_ai
import pytest
from inspect_ai import model as models
from inspect_ai.dataset import Sample
from inspect_ai.scorer import Score, includes, mean, scorer
from inspect_ai.solver import generate, solver, use_tools
from inspect_ai.tool import tool

from hindcast.actors.episodes.recorder import Abandoned
from hindcast.actors.judges.inspect_score import InspectOptions, InspectScoreJudge
from hindcast.actors.judges.judged_episode import JudgedEpisode
from hindcast.app.imports.imported_episode import episode_of
from hindcast.app.imports.inspect_log import conversations_of
from hindcast.app.settings.configuration import resolve
from hindcast.core.models.folders import policy_folder
from hindcast.core.models.tokenizer import load_tokenizer

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]
USAGE = models.ModelUsage(input_tokens=5, output_tokens=3, total_tokens=8)


@tool
def add() -> Any:
    async def execute(x: int, y: int) -> int:
        """Add two numbers.

        Args:
            x: First number.
            y: Second number.
        """
        return x + y

    return execute


@solver
def fails_once() -> Any:
    async def solve(state: Any, generate: Any) -> Any:
        if state.sample_id == "broken":
            raise RuntimeError("the sandbox died")
        return state

    return solve


@scorer(metrics=[mean()])
def graded() -> Any:
    async def score(state: Any, target: Any) -> Score:
        return Score(value={"half": 0.25, "unscored": math.nan}.get(state.sample_id, 1.0))

    return score


def answer(messages: list[Any], *_: Any) -> Any:
    if messages[-1].role == "tool":
        found = models.ModelOutput.from_content("mockllm/model", "It is 2")
    elif "tool" in messages[-1].text:
        found = models.ModelOutput.for_tool_call("mockllm/model", "add", {"x": 1, "y": 1})
    else:
        thought = [models.ContentReasoning(reasoning="easy"), models.ContentText(text="2")]
        found = models.ModelOutput.from_message(models.ChatMessageAssistant(content=thought))
    found.usage = USAGE  # counting tokens would load a tokenizer
    return found


def test_a_log_of_the_real_inspect_becomes_episodes(tmp_path: Path) -> None:
    shots = [
        models.ChatMessageUser(content="2+2?"),
        models.ChatMessageAssistant(content="4"),
        models.ChatMessageUser(content="1+1?"),
    ]
    samples = [Sample(id=name, input=shots, target="2") for name in ("half", "unscored", "broken")]
    task = inspect_ai.Task(
        name="school/sums",
        dataset=[Sample(id="tool", input="Use the tool", target="2"), *samples],
        solver=[use_tools(add()), generate(), fails_once()],
        scorer=[graded(), includes()],
    )
    model = models.get_model("mockllm/model", custom_outputs=answer)
    (log,) = inspect_ai.eval(task, model=model, log_dir=str(tmp_path), display="none", fail_on_error=False)
    gc.collect()  # inspect-ai leaves streams open; found after this test, they would fail the session

    settings = resolve(environment={}, overrides=['actors.answer_format="text"']).settings
    tokenizer = load_tokenizer(policy_folder(settings.policy.base))
    judge = InspectScoreJudge(InspectOptions(scorer="graded"))

    async def seen(conversation: Any) -> tuple[Any, ...]:
        shown = await episode_of(conversation, settings, tokenizer)
        answers = [step.answer for step in shown.steps]
        if isinstance(shown.ended, Abandoned):
            return answers, shown.ended.detail
        verdict = await judge.judge(JudgedEpisode(shown.request.task, shown.ended.evidence, None))  # type: ignore[arg-type]
        return answers, verdict.judgment.outcome, verdict.judgment.reward

    found = {
        one.task.goal["sample"]: asyncio.run(seen(one)) for _, one in conversations_of(Path(log.location))
    }
    thought = "<think>easy</think>\n2"
    call = '<tool_call>\n{"name": "add", "arguments": {"x": 1, "y": 1}}\n</tool_call>'
    assert found.pop("tool") == ([f"tool call for tool add\n{call}", "It is 2"], "success", 1.0)
    broken, why = found.pop("broken")
    assert broken == [thought]
    assert "the sandbox died" in why
    assert found == {"half": ([thought], "failure", 0.25), "unscored": ([thought], "undecided", 0.0)}
