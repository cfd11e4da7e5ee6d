"""Environments of `verifiers` 0.3.1 as tasks here, and our tasks as an environment of its."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import verifiers as vf
from openai import AsyncOpenAI

from hindcast.actors.agents.model_call import ModelCall, Reply
from hindcast.actors.agents.proxy import AgentProxy
from hindcast.api.text_environment import TextEnvironment
from processes.system import ROOT
from stories.played_environments import EPISODES, evaluated, trained

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]

ENVIRONMENTS = ROOT / "docs" / "examples" / "environments"
VERIFIERS = """
import verifiers as vf
from datasets import Dataset

def graded(completion, answer, **_):
    assert all(one["content"] for one in completion)
    return 1.0 if answer == "odd" else 0.25

class Rounds(vf.MultiTurnEnv):
    async def env_response(self, messages, state, **_):
        return [{"role": "user", "content": "Once more."}]

def load_environment(rounds=1):
    rows = Dataset.from_list([{"question": f"Number {i}", "answer": "odd" if i % 2 else "even"} for i in range(4)])
    rubric = vf.Rubric(funcs=[graded])
    if rounds == 1:
        return vf.SingleTurnEnv(dataset=rows, rubric=rubric)
    return Rounds(dataset=rows, rubric=rubric, max_turns=rounds)
"""


def test_the_example_of_a_verifiers_environment_is_trained_on_and_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(ENVIRONMENTS / "pick_item.py", tmp_path)
    home = trained(tmp_path, "--environment", "verifiers:pick-item")
    asked = ("eval", "theirs", "--policy", "latest", "--suite", "verifiers", "--episodes", "8")
    monkeypatch.chdir(tmp_path)
    found = home.json(*asked, "--set", "actors.contexts=1", timeout_s=300)
    assert (found["episodes"], found["lost"]) == (8, 0), "the run's agent, in one process"


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_verifiers_environment_gives_tasks_by_seed_and_its_rubric_s_reward(
    tmp_path: Path, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "numbers_env.py").write_text(VERIFIERS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = evaluated(tmp_path, "verifiers", "numbers-env", f"rounds={rounds}")
    assert (found["episodes"], found["lost"]) == (EPISODES, 0), found["lost_because"]
    assert (found["rate"], found["mean_reward"], found["mean_steps"]) == (0.5, 0.625, rounds)


class Shopper:
    """A policy that opens a page and then gives an answer; see `AgentProxy`."""

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.asked: list[str] = []

    async def ask(
        self, messages: list[dict[str, Any]], *, tools: list[Any], max_tokens: Any, temperature: Any
    ) -> tuple[ModelCall, Reply]:
        call = ModelCall(messages, prompt_ids=[1], max_tokens=9, uses_tools=False)
        self.asked.append(call.text)
        text = 'do(action="Click", element="5")' if len(self.asked) == 1 else f'exit(message="{self.answer}")'
        return call, Reply(text=text, finish="stop", prompt_tokens=1, answer_tokens=1, version=0)

    def reward(self, value: float | None, answer: str | None) -> None:
        """No reward is sent."""


@pytest.mark.browser
async def test_verifiers_plays_the_store_and_gets_the_evaluator_s_reward(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(ENVIRONMENTS / "hindcast_tasks"))
    environment = vf.load_environment("hindcast-tasks", families=["find_feature"], tasks=3)
    row = environment.get_dataset()[2]
    assert row["prompt"][-1]["content"] == "store/find_feature:2"
    with TextEnvironment("store", families=["find_feature"]) as same:
        shopper = Shopper(same.task(row["info"]["seed"]).goal["answer"])
    _, base = await AgentProxy().open(shopper)
    try:
        async with AsyncOpenAI(base_url=f"{base}/v1", api_key="any", max_retries=0) as asked:
            client = vf.OpenAIChatCompletionsClient(asked)
            found = await environment.run_rollout(row, client, "policy", {})
    finally:
        await environment._teardown()
    assert found.get("error") is None
    assert [text.split("\n\n")[0].split(":")[0] for text in shopper.asked] == ["Task Instruction", "Round 1"]
    assert found["reward"] == 1.0
    assert len(environment.get_eval_dataset()) == 100
