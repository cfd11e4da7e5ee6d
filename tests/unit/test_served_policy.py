"""A policy that is served outside any run, asked by OpenAI's own client."""

import asyncio
from collections.abc import AsyncIterator

import openai
import pytest
import pytest_asyncio

from hindcast.actors.agents.served_policy import serve_policy
from hindcast.actors.engines.in_process import InProcessEngine
from hindcast.core.models.folders import base_policy_folder
from hindcast.core.settings.schema import ActorSettings, PolicySettings

pytestmark = [pytest.mark.torch, pytest.mark.asyncio(loop_scope="module")]

ASKED = [{"role": "user", "content": "Click on the button."}]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncIterator[openai.AsyncOpenAI]:
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    limits = ActorSettings(max_prompt_tokens=256, max_answer_tokens=12)
    async with await asyncio.to_thread(InProcessEngine, base_policy_folder(), PolicySettings()) as engine:
        serving = asyncio.create_task(
            serve_policy(engine, limits, host="127.0.0.1", port=0, ready=address.set_result)
        )
        async with openai.AsyncOpenAI(
            base_url=await asyncio.wait_for(address, 30), api_key="any", max_retries=0
        ) as made:
            yield made
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def test_a_greedy_answer_is_the_same_whole_and_streamed(client: openai.AsyncOpenAI) -> None:
    whole = await client.chat.completions.create(model="policy", messages=ASKED, temperature=0)
    assert whole.choices[0].message.content
    assert whole.usage is not None
    assert 0 < whole.usage.completion_tokens <= 12
    stream = await client.chat.completions.create(model="policy", messages=ASKED, temperature=0, stream=True)
    said = "".join([one.choices[0].delta.content or "" async for one in stream])
    assert said == whole.choices[0].message.content
    other = await client.responses.create(model="policy", input="Click on the button.", temperature=0)
    assert other.output_text == said


async def test_a_call_s_own_temperature_and_length_hold(client: openai.AsyncOpenAI) -> None:
    answers = set()
    for _ in range(6):
        found = await client.chat.completions.create(
            model="policy", messages=ASKED, temperature=3.0, max_tokens=5
        )
        assert found.usage is not None
        assert found.usage.completion_tokens <= 5
        answers.add(found.choices[0].message.content)
    assert len(answers) > 1


async def test_what_cannot_be_answered_is_refused_in_words(client: openai.AsyncOpenAI) -> None:
    long = [{"role": "user", "content": "word " * 400}]
    with pytest.raises(openai.BadRequestError, match="256 are allowed"):
        await client.chat.completions.create(model="policy", messages=long)
    with pytest.raises(openai.BadRequestError, match="expected a number, 0 or above"):
        await client.chat.completions.create(model="policy", messages=ASKED, temperature=-1)
    assert [one.id for one in (await client.models.list()).data] == ["policy"]
