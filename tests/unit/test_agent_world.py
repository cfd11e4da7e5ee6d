"""Agents of the user's own: real processes that ask over HTTP, answered by a script in the policy's place."""

import asyncio
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hindcast.actors.agents.model_call import Reply
from hindcast.actors.agents.process import agent_command, require_agent
from hindcast.actors.agents.proxy import AgentProxy
from hindcast.actors.agents.world import AgentVenue, AgentWorld
from hindcast.actors.environments.agent.plugin import ENVIRONMENT
from hindcast.actors.environments.agent.site import OwnTasks
from hindcast.actors.environments.python.plugin import PythonTasks
from hindcast.actors.environments.python.world import PythonVenue
from hindcast.actors.episodes.prompt_reader import Situation
from hindcast.actors.replay.recorded import EpisodeSelection
from hindcast.app.cli.start import overrides_of_python
from hindcast.app.replay.steps import PlayedByAgent, replay_steps
from hindcast.app.settings.configuration import resolve
from hindcast.app.system.sites import task_sources
from hindcast.core.domain.action import Action
from hindcast.core.domain.evidence import Evidence
from hindcast.core.domain.task import Task
from hindcast.core.errors import EnvironmentFailed, SettingsError
from hindcast.core.settings.schema import ActorSettings, PolicySettings, Settings
from hindcast.events.catalogue import EpisodeRequested
from hindcast.events.log.memory import MemoryLog
from stories.held_run import HeldRun

TASK = PythonTasks("agent", ("own",), max_steps=5).task("own", 3)
ASK = """
import json, os, sys
from urllib.error import HTTPError
from urllib.request import Request, urlopen

def post(path, **body):
    request = Request(os.environ["HINDCAST_EPISODE_URL"] + path, data=json.dumps(body).encode(), method="POST")
    try:
        return json.load(urlopen(request))
    except HTTPError as error:
        return error.code, json.load(error)["error"]["message"]

def ask(text, **more):
    return post("/v1/chat/completions", messages=[{"role": "user", "content": text}], **more)
"""

REQUEST = EpisodeRequested(
    episode="ep_1",
    task=TASK,
    group="g_1",
    member=0,
    group_size=1,
    attempt=0,
    origin="online",
    temperature=1.0,
    phase=0,
    min_version=0,
    lease_s=900.0,
)


def settings(tmp_path: Path, script: str, **values: object) -> ActorSettings:
    (tmp_path / "agent.py").write_text(ASK + script)
    command = f"{shlex.quote(sys.executable)} agent.py"
    return ActorSettings(
        agent=command, agent_folder=str(tmp_path), answer_format="text", **{"agent_wait_s": 20.0, **values}
    )


def opened(chosen: ActorSettings) -> AgentWorld:
    return opened_at(AgentVenue(OwnTasks("agent"), AgentProxy(), chosen))


def opened_at(venue: AgentVenue) -> AgentWorld:
    world = venue.open_world()
    assert isinstance(world, AgentWorld)
    world.read_with(lambda messages, tools: [len(str(one)) for one in messages] + [len(tools)])
    return world


async def played(
    world: AgentWorld, answer: Callable[[str], str], *, most: int = 5, task: Task = TASK
) -> list[str]:
    """Play an episode; returns what the agent asked."""
    await world.reset(task)
    asked: list[str] = []
    for _ in range(most):
        asked.append(world.call.text)
        text = answer(world.call.text)
        count = len(world.call.prompt_ids)
        world.answer(
            Reply(
                text=text,
                finish="stop",
                prompt_tokens=count,
                answer_tokens=1,
                version=4,
                number=len(asked) - 1,
            )
        )
        outcome = await world.step(Action(name="Type", element=1, argument=text))
        if outcome.done:
            break
    return asked


def started(tmp_path: Path) -> list[str]:
    """Ids of the processes that the agent `SEVERAL` has had."""
    return (tmp_path / "started").read_text().split()


async def until_gone(process: str) -> None:
    """Wait until a process has ended."""
    place = Path("/proc", process)
    deadline = time.monotonic() + 10
    while place.exists() and "Z" not in (place / "stat").read_text().split()[2]:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


async def test_each_call_is_a_step_and_the_reward_is_the_evidence(tmp_path: Path) -> None:
    world = opened(
        settings(
            tmp_path,
            """
first = ask("one", max_tokens=3)
assert first["choices"][0]["message"]["content"] == "ONE", first
assert first["model"] == "policy-4"
assert ask("two")["usage"] == {"prompt_tokens": 2, "completion_tokens": 1, "total_tokens": 3}
assert os.environ["HINDCAST_SEED"] == "3"
post("/reward", reward=0.75, answer="forty")
""",
        )
    )
    assert await played(world, str.upper) == ["one", "two"]
    evidence = await world.finish(None)
    assert (evidence.answer, evidence.probes) == ("forty", {"reward": 0.75})
    judgment = ENVIRONMENT.evaluate(TASK, evidence, {})
    assert (judgment.outcome, judgment.reward) == ("success", 0.75)
    await world.close()


async def test_a_reward_counts_by_its_place_in_the_declared_range_and_one_outside_is_refused(
    tmp_path: Path,
) -> None:
    script = """
ask("x")
for reward in (2.5, -1.5):
    status, why = post("/reward", reward=reward)
    assert status == 422 and f"the reward is {reward:g}, outside" in why and "actors.agent_reward_range" in why, why
post("/reward", reward=0.25)
"""
    for limits, outcome, share in (((0.0, 1.0), "failure", 0.25), ((-1.0, 1.5), "success", 0.5)):
        world = opened(settings(tmp_path, script, agent_reward_range=limits))
        await played(world, str.upper)
        evidence = await world.finish(None)
        assert evidence.probes["reward"] == 0.25, "the reward as it was sent"
        judgment = ENVIRONMENT.evaluate(TASK, evidence, {})
        assert (judgment.outcome, judgment.reward) == (outcome, share), judgment.reason
        await world.close()
    with pytest.raises(
        SettingsError, match=r"actors\.agent_reward_range = \[1, 0\] must be two finite numbers"
    ):
        resolve(
            environment={},
            folder=tmp_path,
            overrides=["actors.agent=python agent.py", "actors.agent_reward_range=[1,0]"],
        )


async def test_an_agent_that_asks_too_often_ends_with_a_reason(tmp_path: Path) -> None:
    task = PythonTasks("agent", ("own",), max_steps=2).task("own", 3)
    script = """
while True:
    ask("again")
"""
    chosen = Settings(actors=settings(tmp_path, script, agent_steps=2))
    source = ENVIRONMENT.tasks("agent", chosen)
    assert source is not None
    assert source.task("own", 3).max_steps == 2
    world = opened(chosen.actors)
    await played(world, str.upper, task=task, most=2)
    evidence = await world.finish(None)
    assert evidence.probes == {"reward": None, "cut_after": 2}
    judgment = ENVIRONMENT.evaluate(task, evidence, {})
    assert judgment.outcome == "undecided"
    assert "sent no reward before it was ended after 2 calls (actors.agent_steps)" in judgment.reason
    await world.close()


async def test_the_openai_client_reads_answers_streams_tools_and_responses(tmp_path: Path) -> None:
    world = opened(
        settings(
            tmp_path,
            """
from openai import BadRequestError, OpenAI

client = OpenAI(max_retries=0)
assert [one.id for one in client.models.list()] == ["policy"]
assert client.models.retrieve("policy").id == "policy"
messages = [{"role": "user", "content": "stream"}]
chunks = list(client.chat.completions.create(model="policy", messages=messages, stream=True))
assert "".join(one.choices[0].delta.content or "" for one in chunks if one.choices) == "STREAM"
assert chunks[-1].choices[0].finish_reason == "stop"
tool = {"type": "function", "function": {"name": "click", "parameters": {"type": "object"}}}
messages = [{"role": "user", "content": '<tool_call>{"name": "click", "arguments": {"id": 7}}</tool_call>'}]
(call,) = client.chat.completions.create(model="policy", messages=messages, tools=[tool]).choices[0].message.tool_calls
assert (call.function.name, json.loads(call.function.arguments)) == ("click", {"id": 7})
(other,) = client.chat.completions.create(model="policy", messages=messages, tools=[tool], n=None).choices[0].message.tool_calls
assert (call.id, other.id) == ("call00100", "call00200")
assert client.responses.create(model="policy", instructions="be brief", input="respond").output_text == "BE BRIEF\\nRESPOND"
try:
    client.chat.completions.create(model="policy", messages=[{"role": "user", "content": "x"}], n=2)
except BadRequestError as error:
    assert "n must be 1" in str(error)
""",
        )
    )
    asked = await played(world, lambda text: text if "tool_call" in text else text.upper())
    assert len(asked) == 4
    assert (await world.finish(None)).probes == {"reward": None}
    await world.close()


async def test_the_openai_client_streams_responses_and_sends_back_what_tools_returned(tmp_path: Path) -> None:
    world = opened(
        settings(
            tmp_path,
            """
from openai import BadRequestError, OpenAI

client = OpenAI(max_retries=0)
with client.responses.stream(model="policy", input="stream") as stream:
    assert "".join(one.delta for one in stream if one.type == "response.output_text.delta") == "STREAM"
    final = stream.get_final_response()
assert (final.output_text, final.status, final.usage.output_tokens) == ("STREAM", "completed", 1)
tool = {"type": "function", "name": "stock", "parameters": {"type": "object", "properties": {}}, "strict": False}
asked = [{"role": "user", "content": 'Now: <tool_call>{"name": "stock", "arguments": {"item": "lamp"}}</tool_call>'}]
events = list(client.responses.create(model="policy", input=asked, tools=[tool], stream=True))
assert [one.sequence_number for one in events] == list(range(len(events)))
assert [one.item.type for one in events if one.type == "response.output_item.done"] == ["message", "function_call"]
(spelled,) = [one for one in events if one.type == "response.function_call_arguments.done"]
assert (spelled.name, json.loads(spelled.arguments)) == ("stock", {"item": "lamp"})
said, call = events[-1].response.output
assert (said.content[0].text, call.name) == ("Now:", "stock")
assert said.id == "msg_1", said
thought = {"type": "reasoning", "id": "rs_0", "summary": [{"type": "summary_text", "text": "count"}]}
returned = {"type": "function_call_output", "call_id": call.call_id, "output": "7 lamps"}
assert client.responses.create(model="policy", input=[*asked, thought, said, call, returned], tools=[tool]).output_text == "7 LAMPS"
for why, more in {
    "an item of type 'item_reference'": {"input": [{"type": "item_reference", "id": "x"}]},
    "expected the type function": {"tools": [{"type": "web_search"}]},
}.items():
    try:
        client.responses.create(**{"model": "policy", "input": "x", "stream": True, **more})
        raise SystemExit(f"not refused: {more}")
    except BadRequestError as error:
        assert why in str(error), error
""",
        )
    )
    read: list[list[dict[str, object]]] = []

    def encode(messages: list[dict[str, object]], tools: list[dict[str, object]]) -> list[int]:
        read.append(messages)
        return [1]

    world.read_with(encode)
    asked = await played(world, lambda text: text if "tool_call" in text else text.upper())
    assert asked[2] == "7 lamps"
    _, answer, output = read[-1]
    assert answer["tool_calls"] == [
        {
            "id": "call00100",
            "type": "function",
            "function": {"name": "stock", "arguments": '{"item":"lamp"}'},
        }
    ]
    assert (output["role"], output["tool_call_id"]) == ("tool", "call00100")
    assert (await world.finish(None)).probes == {"reward": None}
    await world.close()


GIVES_UP = """
from http.client import HTTPConnection
from urllib.parse import urlsplit

def left(text):
    # asks, and leaves before the answer once it is closed
    base = urlsplit(os.environ["HINDCAST_EPISODE_URL"])
    connection = HTTPConnection(base.netloc)
    body = json.dumps({"messages": [{"role": "user", "content": text}]})
    connection.request("POST", base.path + "/v1/chat/completions", body)
    return connection
"""


async def test_a_call_in_the_queue_whose_client_leaves_is_no_step(tmp_path: Path) -> None:
    script = """
import threading, time
first = threading.Thread(target=ask, args=["one"])
first.start()
time.sleep(0.5)
gone = left("two")
time.sleep(0.5)
gone.close()
time.sleep(0.5)
open("left", "w").close()
first.join()
ask("three")
"""

    world = opened(settings(tmp_path, GIVES_UP + script))
    await world.reset(TASK)
    deadline = time.monotonic() + 10
    while not (tmp_path / "left").exists():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    asked = []
    for number in range(3):
        asked.append(world.call.text)
        world.answer(
            Reply(text="x", finish="stop", prompt_tokens=1, answer_tokens=1, version=4, number=number)
        )
        if (await world.step(Action(name="Type", element=1, argument="x"))).done:
            break
    assert asked == ["one", "three"]
    await world.close()


@pytest.mark.torch
@pytest.mark.parametrize("again", ["one", "another"])
async def test_a_call_given_up_while_it_is_sampled_and_the_next_one_are_one_step(
    tmp_path: Path, again: str
) -> None:
    from fakes.tiny_policy import write_tiny_policy
    from hindcast.actors.agents.answerer import AgentAnswerer
    from hindcast.actors.engines.in_process import InProcessEngine

    script = f"""
gone = left("one")
import time
while not os.path.exists("sampling"):
    time.sleep(0.02)
gone.close()
open("answer", "w").write(ask({again!r})["choices"][0]["message"]["content"])
"""
    prompts: list[list[int]] = []

    class SlowEngine(InProcessEngine):
        async def generate(self, prompt_ids: Any, sampling: Any, constraint: Any = None) -> Any:
            prompts.append(list(prompt_ids))
            found = await super().generate(prompt_ids, sampling, constraint)
            (tmp_path / "sampling").touch()
            if len(prompts) == 1:
                await asyncio.wait([world.call.reply])
            return found

    world = opened(settings(tmp_path, GIVES_UP + script))
    async with SlowEngine(write_tiny_policy(tmp_path / "policy"), PolicySettings()) as engine:
        answerer = AgentAnswerer(REQUEST, world=world, engine=engine, run_seed=1, content=False)
        start = await world.reset(TASK)
        situation = Situation(
            index=0,
            instruction="",
            observation=start.observation,
            answers=[],
            actions=[],
        )
        async with asyncio.timeout(20):
            answer = await answerer.answer(situation)
        assert len(prompts) == (1 if again == "one" else 2), "a question asked again gets the answer it has"
        assert answer.prompt.ids == prompts[-1]
        assert answer.observation is not None
        assert again in str(answer.observation.page)
        outcome = await world.step(Action(name="Type", element=1, argument=answer.text))
    assert outcome.done
    assert (tmp_path / "answer").read_text() == answer.text
    await world.close()


async def test_bad_requests_get_a_reason_and_are_no_steps(tmp_path: Path) -> None:
    world = opened(
        settings(
            tmp_path,
            """
assert ask(7)[0] == 400
assert "is 0: expected a number above 0" in ask("x", max_tokens=0)[1]
assert ask("x", stream=True, stream_options=True)[1].startswith("stream_options is True: expected an object")
assert ask("x", n=0)[0] == 400
assert "the reward is 'much'" in post("/reward", reward="much")[1]
long = [{"role": "user", "content": "x"} for _ in range(12)]
status, why = post("/v1/chat/completions", messages=long)
assert (status, why) == (400, "the messages have 13 tokens, 12 are allowed (actors.max_prompt_tokens): shorten them"), why
os.environ["HINDCAST_EPISODE_URL"] += "x"
assert ask("nobody's")[0] == 404
os.environ["HINDCAST_EPISODE_URL"] = os.environ["HINDCAST_EPISODE_URL"][:-1]
ask("now")
""",
            max_prompt_tokens=12,
        )
    )
    assert await played(world, str.upper) == ["now"]
    await world.close()


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("print('hello')", r"ended before it asked the policy anything\. It wrote: hello"),
        ("raise SystemExit('no key')", r"ended with status 1\. It wrote: no key"),
        ("ask('x'); raise KeyError('gone')", r"ended with status 1\. It wrote: .*KeyError: 'gone'"),
    ],
)
async def test_an_agent_that_fails_ends_its_episode_with_its_last_words(
    tmp_path: Path, script: str, why: str
) -> None:
    world = opened(settings(tmp_path, script))
    with pytest.raises(EnvironmentFailed, match=why):
        await played(world, str.upper)
    await world.close()


async def test_an_agent_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    script = """
import subprocess, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open("child", "w").write(str(child.pid))
ask("x")
time.sleep(600)
"""
    world = opened(settings(tmp_path, script, agent_wait_s=3.0))
    with pytest.raises(EnvironmentFailed, match=r"neither asked anything nor ended within 3 s"):
        await played(world, str.upper)
    await world.close()
    await until_gone((tmp_path / "child").read_text())


async def test_an_episode_that_ends_first_ends_the_agent(tmp_path: Path) -> None:
    world = opened(settings(tmp_path, "while True: ask('again')"))
    assert await played(world, str.upper, most=3) == ["again"] * 3
    assert isinstance(await world.finish(None), Evidence)
    await world.close()


SEVERAL = """
open("started", "a").write(f"{os.getpid()}\\n")
assert "HINDCAST_SEED" not in os.environ
for line in sys.stdin:
    os.environ.update(json.loads(line))
    post("/end", reward=0.5, answer=ask("seed " + os.environ["HINDCAST_SEED"])["choices"][0]["message"]["content"])
"""


async def test_one_process_plays_as_many_episodes_as_it_may(tmp_path: Path) -> None:
    venue = AgentVenue(OwnTasks("agent"), AgentProxy(), settings(tmp_path, SEVERAL, agent_episodes=2))
    for _ in range(3):
        world = opened_at(venue)
        assert await played(world, str.upper) == ["seed 3"]
        evidence = await world.finish(None)
        assert (evidence.answer, evidence.probes) == ("SEED 3", {"reward": 0.5})
        await world.close()
    first, second = started(tmp_path)
    await until_gone(first)  # it played the two that it may
    assert Path("/proc", second).exists()


async def test_the_program_of_the_documentation_plays_one_episode_after_the_other(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "agents.md"
    (loop,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    before = """
open("started", "a").write(f"{os.getpid()}\\n")

def play():
    ask("seed " + os.environ["HINDCAST_SEED"])
    return 0.5

"""
    for most in (1, 9):
        venue = AgentVenue(
            OwnTasks("agent"), AgentProxy(), settings(tmp_path, before + loop, agent_episodes=most)
        )
        for _ in range(2):
            world = opened_at(venue)
            assert await played(world, str.upper) == ["seed 3"]
            assert (await world.finish(None)).probes == {"reward": 0.5}
            await world.close()
    assert len(started(tmp_path)) == 3, "two processes of an episode each, then one of two"


async def test_a_process_that_did_not_end_its_episode_plays_no_other(tmp_path: Path) -> None:
    venue = AgentVenue(OwnTasks("agent"), AgentProxy(), settings(tmp_path, SEVERAL, agent_episodes=9))
    world = opened_at(venue)
    await world.reset(TASK)
    await world.finish(None)  # as at max_steps: the agent still waits for an answer
    await world.close()
    assert await played(opened_at(venue), str.upper) == ["seed 3"]
    first, _ = started(tmp_path)
    await until_gone(first)


async def test_a_process_that_dies_while_it_waits_is_replaced(tmp_path: Path) -> None:
    venue = AgentVenue(OwnTasks("agent"), AgentProxy(), settings(tmp_path, SEVERAL, agent_episodes=9))
    for _ in range(2):
        world = opened_at(venue)
        assert await played(world, str.upper) == ["seed 3"]
        await world.finish(None)
        await world.close()
        os.kill(int(started(tmp_path)[-1]), signal.SIGKILL)
        await until_gone(started(tmp_path)[-1])
    assert len(started(tmp_path)) == 2


async def test_a_python_class_gives_instruction_and_text(tmp_path: Path) -> None:
    class Questions:
        """Answer the question."""

        def reset(self, seed: int) -> str:
            return f"What is {seed} + 1?"

        def step(self, action: str) -> tuple[str, float, bool]:
            raise AssertionError("the agent plays")

    chosen = settings(tmp_path, "ask(os.environ['HINDCAST_INSTRUCTION'] + os.environ['HINDCAST_TEXT'])")
    place = PythonVenue("m:Questions", Questions, chosen)
    world = AgentVenue(place, AgentProxy(), chosen).open_world()
    assert isinstance(world, AgentWorld)
    world.read_with(lambda messages, tools: [1])
    assert await played(world, str.upper) == ["Answer the question.What is 3 + 1?"]
    await world.close()


def test_settings_that_an_agent_cannot_play_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"the program 'nobody' of actors\.agent"):
        require_agent(ActorSettings(agent="nobody --loud"))
    with pytest.raises(SettingsError, match="is no command"):
        require_agent(ActorSettings(agent="python 'agent.py"))
    require_agent(ActorSettings(agent=sys.executable))
    with pytest.raises(SettingsError) as refused:
        resolve(
            environment={},
            folder=tmp_path,
            overrides=["actors.agent=python agent.py", "curriculum.demonstrations=4"],
        )
    for part in (
        "answer_format = 'text', found 'plain'",
        "cannot play miniwob",
        "demonstrations = 0, found 4",
    ):
        assert part in str(refused.value)


def test_a_program_of_another_project_needs_its_package_and_an_interpreter(tmp_path: Path) -> None:
    (tmp_path / "verifiers.py").write_text("")  # of the folder, which the program's own path does not have
    folder = str(tmp_path)
    with pytest.raises(SettingsError, match=r"package verifiers, which .*pip install verifiers==0\.3\.1"):
        require_agent(ActorSettings(agent="verifiers:pick-item", agent_folder=folder))
    with pytest.raises(SettingsError, match=r"true.*is no Python interpreter"):
        require_agent(ActorSettings(agent="verifiers:pick-item", agent_python="true"))
    with pytest.raises(SettingsError, match="the program '/no/python'"):
        require_agent(ActorSettings(agent="verifiers:pick-item", agent_python="/no/python"))


def test_an_environment_of_another_project_is_named_with_its_arguments(tmp_path: Path) -> None:
    chosen = overrides_of_python(["mcp:--question-file q.txt 'my server'"], None, None)
    found = resolve(environment={}, folder=tmp_path, overrides=chosen).settings
    assert found.curriculum.environments == ("mcp",)
    assert found.actors.agent_episodes == 1000
    python, program, *arguments = agent_command(found.actors)
    assert python == sys.executable
    assert Path(program).is_file()
    assert arguments == ["--question-file", "q.txt", "my server"]
    assert set(task_sources(found)) >= {"mcp", "agent"}
    assert not {"verifiers", "openenv"} & set(task_sources(found))
    one_each = overrides_of_python(["verifiers_taskset:gsm8k"], None, None)
    assert resolve(environment={}, folder=tmp_path, overrides=one_each).settings.actors.agent_episodes == 1
    for wrong in ("verifiers", "verifiers:"):
        with pytest.raises(SettingsError, match="needs its arguments: hindcast start --environment"):
            resolve(environment={}, folder=tmp_path, overrides=overrides_of_python([wrong], None, None))
    for environments, agent in ((["mcp:a", "store"], None), (["mcp:a"], "python b.py")):
        with pytest.raises(SettingsError, match="'mcp:a' is played by a program of its own"):
            overrides_of_python(environments, None, agent)


async def test_the_wanted_form_of_an_answer_reaches_the_policy_and_what_is_not_heeded_is_refused(
    tmp_path: Path,
) -> None:
    world = opened(
        settings(
            tmp_path,
            """
from openai import BadRequestError, OpenAI

client = OpenAI(max_retries=0)
schema = {"type": "object", "properties": {"price": {"type": "number"}}}
form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}
asked = [{"role": "developer", "content": [{"type": "text", "text": "brief"}]}, {"role": "user", "content": "price?"}]
client.chat.completions.create(model="policy", messages=asked, response_format=form, tool_choice="none")
client.responses.create(model="policy", input="price?", text={"format": {"type": "json_object"}})
tool = {"type": "function", "function": {"name": "click", "parameters": {"type": "object"}}}
image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
for why, more in {
    "tool_choice is 'required'": {"tools": [tool], "tool_choice": "required"},
    "the type text, json_object, or json_schema": {"response_format": {"type": "grammar"}},
    "stop is ['END']: the policy is not asked with it": {"stop": ["END"]},
    "logprobs is True": {"logprobs": True},
    "reads text alone": {"messages": [{"role": "user", "content": [image]}]},
}.items():
    try:
        client.chat.completions.create(**{"model": "policy", "messages": asked, **more})
        raise SystemExit(f"not refused: {more}")
    except BadRequestError as error:
        assert why in str(error), error
""",
        )
    )
    asked = await played(world, str.upper)
    schema = '{"type":"object","properties":{"price":{"type":"number"}}}'
    assert asked == [
        f"brief\n\nAnswer with JSON of this schema and nothing else:\n{schema}\nprice?",
        "Answer with a JSON object and nothing else.\nprice?",
    ]
    await world.close()


async def test_steps_of_an_agent_are_not_replayed_and_nothing_is_started(tmp_path: Path) -> None:
    chosen = Settings(actors=settings(tmp_path, "open('started', 'w')"))
    with pytest.raises(PlayedByAgent, match=r"actors\.agent = .*agent\.py.*hindcast replay sampling r_mine"):
        await replay_steps(HeldRun(MemoryLog("r_mine"), settings=chosen), EpisodeSelection())
    assert not (tmp_path / "started").exists()


WRITE_ON = """
import asyncio, uvloop
from hindcast.actors.agents.process import AgentProcess
from hindcast.core.settings.schema import ActorSettings

async def write_on():
    process = await AgentProcess.start(ActorSettings(agent="true", agent_episodes=9), {})
    await process.wait()
    return [await process._write({}) for _ in range(3)]

print(uvloop.run(write_on())[-1])
"""


def test_an_agent_whose_input_is_closed_has_ended() -> None:
    """uvloop, by which actors run, has an error of its own for a pipe that is closed."""
    ran = subprocess.run([sys.executable, "-c", WRITE_ON], capture_output=True, text=True, check=False)
    assert ran.stdout == "False\n", ran.stderr
