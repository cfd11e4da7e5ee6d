"""Hindcast's tasks in a real Chromium, played by the clients of other projects: OpenEnv's and verifiers'."""

import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from openai import AsyncOpenAI

from hindcast.actors.agents.model_call import ModelCall, Reply
from hindcast.actors.agents.proxy import AgentProxy
from hindcast.api.text_environment import TextEnvironment
from processes.system import ROOT
from servers.http_process import http_process

for package in ("verifiers", "openenv"):
    pytest.importorskip(package, reason="run: make peers")
pytestmark = [pytest.mark.peers, pytest.mark.browser, pytest.mark.filterwarnings("ignore")]

EXAMPLES = ROOT / "docs" / "examples" / "environments"


def click(button: str, page: str) -> str:
    """The answer that clicks on a button of a page."""
    found = re.search(rf"button {button} \[(\d+)\]", page)
    assert found is not None, page
    return f'do(action="Click", element="{found[1]}")'


@pytest.fixture
def server() -> Iterator[str]:
    command = [
        sys.executable,
        str(EXAMPLES / "openenv_server.py"),
        "--port",
        "PORT",
        "--environment",
        "miniwob",
    ]
    with http_process(
        [*command, "--family", "click-test", "--family", "click-test-2"], health="/health"
    ) as url:
        yield url


def test_openenv_s_client_plays_tasks_in_sessions_of_their_own(server: str) -> None:
    from openenv.core import GenericEnvClient

    with GenericEnvClient(base_url=server).sync() as one, GenericEnvClient(base_url=server).sync() as other:
        first, second = one.reset(seed=2), other.reset(seed=3)
        assert not first.done
        assert first.observation["text"].startswith("Task Instruction: Click the button.\n\nRound 0\n\npage")
        shown = one.step({"message": "I do not know."})
        assert not shown.done
        assert shown.observation["text"].startswith("Round 1\n\npage")
        won = one.step({"message": click("Click Me!", shown.observation["text"])})
        assert (won.done, won.reward, won.observation["outcome"]) == (True, 1.0, "success")
        lost = other.step({"message": click("TWO", second.observation["text"])})
        assert (lost.done, lost.reward, lost.observation["outcome"]) == (True, 0.0, "failure")
        assert one.reset(seed=2).observation["text"] == first.observation["text"]


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


async def test_verifiers_plays_the_store_and_gets_the_evaluator_s_reward(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import verifiers as vf

    monkeypatch.syspath_prepend(str(EXAMPLES / "hindcast_tasks"))
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
