"""The prompting baseline: a model behind an endpoint acts, is asked in the policy's own turns, and is never trained."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from hindcast.actors.endpoint.client import Endpoint
from hindcast.actors.endpoint.completion import Message
from hindcast.actors.engines.endpoint import NO_VERSION, PROMPT, EndpointEngine, TextTokenizer
from hindcast.actors.engines.in_process import InProcessEngine
from hindcast.actors.environments.store.tasks import StoreTasks
from hindcast.actors.episodes.answerers import PolicyAnswerer
from hindcast.actors.episodes.prompt_reader import Situation, prompt_of
from hindcast.app.cli import app as cli
from hindcast.app.settings.configuration import resolve
from hindcast.core.domain.action import ACTIONS, ParseFailure
from hindcast.core.domain.observation import Observation
from hindcast.core.domain.sampling import Sampling
from hindcast.core.errors import EngineFailed, ModelFileError, SettingsError
from hindcast.core.grammar.answer_parser import parse_answer
from hindcast.core.models.folders import base_policy_folder
from hindcast.core.prompts.chat_frame import STAND_IN
from hindcast.core.prompts.prompt import build_prompt
from hindcast.core.settings.endpoint import EndpointSettings
from hindcast.core.settings.schema import ActorSettings, PolicySettings, SiteSettings
from hindcast.events.catalogue import EpisodeRequested
from hindcast.storage.blobs.store import BlobStore
from servers.chat_server import Body, Reaction, chatting, fails, in_turn, policy_rule, says
from stories.store_visitor import running_store
from stories.store_walk import Visit

pytestmark = pytest.mark.torch

SITE = SiteSettings(products=60)
SAMPLING = Sampling(temperature=0.0, max_tokens=64, seed=2**62)
TOKENIZER: Any = TextTokenizer()


def settings_for(url: str) -> EndpointSettings:
    return EndpointSettings(base_url=url, model="actor", retries=0, price_answer=1.0)


@given(
    instruction=st.text(max_size=20),
    answers=st.lists(st.text("abc\ue000\ue001\ue002<|", min_size=1, max_size=9), max_size=4),
    page=st.text(max_size=40),
)
def test_the_turns_of_a_prompt_come_back_as_messages_and_no_text_can_end_one(
    instruction: str, answers: list[str], page: str
) -> None:
    prompt = build_prompt(
        TOKENIZER, instruction=instruction, answers=answers, page_text=page, max_tokens=10_000
    )
    messages = TOKENIZER.messages(prompt.ids)
    assert [one.role for one in messages] == ["user", "assistant"] * len(answers) + ["user"]
    clean = [text.translate(dict.fromkeys((0xE000, 0xE001, 0xE002), "\ufffd")) for text in (*answers, page)]
    assert [one.content for one in messages[1::2]] == [answer.strip() for answer in clean[:-1]]
    assert messages[-1].content.endswith(f"Round {len(answers)}\n\n{clean[-1]}")
    assert messages[0].content.startswith("Task Instruction: ")
    assert all(one.content.endswith(STAND_IN) for one in messages[:-1:2])


def test_the_system_prompt_names_every_action() -> None:
    (system,) = PROMPT.turns
    missing = [name for name in ACTIONS if f'action="{name}"' not in system.content and name != "exit"]
    assert not missing
    calls = [line for line in system.content.splitlines() if line.startswith(("do(", "exit("))]
    assert len(calls) == len(ACTIONS)
    assert not [call for call in calls if isinstance(parse_answer(call), ParseFailure)]


@pytest.fixture(scope="module")
def visit() -> Iterator[Visit]:
    with running_store(SITE) as base_url:
        visit = Visit(base_url, StoreTasks(SITE).task("add_to_cart", 1))
        visit.demonstrate()
        yield visit


async def test_a_real_model_behind_a_server_gives_the_answers_that_it_gives_in_process(
    visit: Visit, tmp_path: Path
) -> None:
    """The base policy, asked for each step of a visit; what it read over the wire is what it reads here."""
    folder, settings = base_policy_folder(), ActorSettings()
    request = next(
        fact for fact in visit.facts("ep", BlobStore(tmp_path)) if isinstance(fact, EpisodeRequested)
    )
    greedy = msgspec.structs.replace(request, temperature=0.0)
    wide = settings.model_copy(update={"max_prompt_tokens": 100_000})
    here: list[str] = []
    there: list[str] = []
    async with InProcessEngine(folder, PolicySettings()) as engine:
        with chatting(policy_rule(engine)) as server:
            async with Endpoint(settings_for(server.base_url), environment={}) as endpoint:
                asked = EndpointEngine(endpoint, keep_thoughts=False)
                near = PolicyAnswerer(greedy, engine=engine, settings=settings, run_seed=1)
                far = PolicyAnswerer(greedy, engine=asked, settings=wide, run_seed=1)
                for index, page in enumerate(visit.pages):
                    situation = Situation(
                        index=index,
                        instruction=visit.task.instruction,
                        observation=Observation(page=page, digest=""),
                        answers=tuple(here),
                        actions=visit.actions[:index],
                    )
                    answer = await far.answer(situation)
                    there.append(answer.text)
                    here.append((await near.answer(situation)).text)
                    assert set(answer.versions) == {NO_VERSION}
    assert there == here
    assert len(set(here)) > 1, "it reads the pages"
    assert not [text for text in here if isinstance(parse_answer(text), ParseFailure)]
    read = prompt_of(
        engine.tokenizer,
        settings,
        instruction=visit.task.instruction,
        answers=(),
        page=visit.pages[0],
        earlier=(),
    )
    assert asked.prompt_tokens >= len(read.ids) * len(here)
    assert asked.cost_usd == pytest.approx(asked.answer_tokens * 1e-6)
    assert server.asked[0]["messages"][0]["content"] == PROMPT.filled({})[0].content


async def generated(reaction: Reaction, *, keep_thoughts: bool = False) -> tuple[str, list[Body]]:
    with chatting(in_turn(reaction)) as server:
        async with Endpoint(settings_for(server.base_url), environment={}) as endpoint:
            engine = EndpointEngine(endpoint, keep_thoughts=keep_thoughts)
            ids = build_prompt(TOKENIZER, instruction="i", answers=(), page_text="p", max_tokens=1000).ids
            answer = await engine.generate(ids, SAMPLING)
    assert len(answer.token_ids) == len(answer.logprobs) == len(answer.versions)
    return TOKENIZER.decode(answer.token_ids, skip_special_tokens=True), server.asked


async def test_a_thought_is_a_part_of_the_answer_only_where_answers_have_one() -> None:
    thinking = says("<think>go</think><answer>exit()</answer>")
    assert (await generated(thinking))[0] == "<answer>exit()</answer>"
    assert (await generated(thinking, keep_thoughts=True))[0] == "<think>go</think><answer>exit()</answer>"


async def test_a_refusal_is_an_answer_that_is_no_action_and_an_outage_is_none_at_all() -> None:
    text, asked = await generated(says(None, refusal="I will not."))
    assert isinstance(parse_answer(text), ParseFailure)
    assert asked[0]["seed"] < 2**31
    for trouble in (fails(500), fails(400)):
        with pytest.raises(EngineFailed):
            await generated(trouble)


async def test_it_takes_neither_weights_nor_a_constraint() -> None:
    async with Endpoint(settings_for("http://127.0.0.1:9/v1"), environment={}) as endpoint:
        engine = EndpointEngine(endpoint, keep_thoughts=False)
        with pytest.raises(ModelFileError, match="weights of version 3"):
            await engine.adopt(3, Path("weights"))
        with pytest.raises(ModelFileError, match="cannot be constrained"):
            await engine.generate([1], SAMPLING, (("exit()",),))


def test_it_can_be_evaluated_and_not_trained() -> None:
    with pytest.raises(SettingsError, match="hindcast eval --policy endpoint:MODEL"):
        resolve(environment={}, overrides=["policy.base=endpoint:gpt"])
    for arguments, why in (
        ([], "needs a model and a server"),
        (
            ["--set", "endpoint.base_url=http://h/v1", "--set", "scaffold.states=laser"],
            "cannot be constrained",
        ),
    ):
        result = CliRunner().invoke(cli, ["eval", "--policy", "endpoint:gpt", *arguments])
        assert isinstance(result.exception, SettingsError)
        assert why in str(result.exception)


def test_messages_are_plain() -> None:
    assert TOKENIZER.messages([]) == []
    assert TOKENIZER.messages([0xE000, ord("a"), 0xE001]) == [Message("user", "a")]
