import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest
import torch

from fakes.tiny_policy import tiny_model, write_tiny_policy
from hindcast.actors.engines.base import Generation
from hindcast.actors.engines.batch import draw
from hindcast.actors.engines.in_process import InProcessEngine
from hindcast.core.domain.sampling import Sampling
from hindcast.core.errors import EngineFailed, ModelFileError
from hindcast.core.models.logprobs import SampleToScore, score
from hindcast.core.models.policy import load_policy, save_weights
from hindcast.core.settings.schema import PolicySettings

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_policy(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
async def engine(folder: Path) -> AsyncIterator[InProcessEngine]:
    async with InProcessEngine(folder, PolicySettings(threads=1, max_batch=4)) as engine:
        yield engine


def _requests(count: int, *, temperature: float = 1.0) -> list[tuple[list[int], Sampling]]:
    random = Random(5)
    return [
        (
            [random.randrange(4, 2000) for _ in range(random.choice((1, 2, 7, 40, 90)))],
            Sampling(temperature=temperature, max_tokens=random.randint(1, 24), seed=number),
        )
        for number in range(count)
    ]


async def _together(engine: InProcessEngine, requests: list[tuple[list[int], Sampling]]) -> list[Generation]:
    return list(await asyncio.gather(*(engine.generate(*request) for request in requests)))


async def test_answers_given_together_equal_answers_given_alone(engine: InProcessEngine) -> None:
    requests = _requests(14)
    together = await _together(engine, requests)
    alone = [await engine.generate(*request) for request in requests]
    assert [answer.token_ids for answer in together] == [answer.token_ids for answer in alone]
    for one, other in zip(together, alone, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


@pytest.mark.parametrize("temperature", [1.0, 0.6, 0.0])
async def test_engine_and_scorer_agree_on_log_probabilities(
    engine: InProcessEngine, folder: Path, temperature: float
) -> None:
    requests = _requests(12, temperature=temperature)
    answers = await _together(engine, requests)
    samples = [
        SampleToScore(prompt, answer.token_ids) for (prompt, _), answer in zip(requests, answers, strict=True)
    ]
    with torch.no_grad():
        scores = score(load_policy(folder).model, samples, temperature=temperature, tokens_per_forward=256)
    for answer, logprobs in zip(answers, scores, strict=True):
        assert answer.logprobs == pytest.approx(logprobs.tolist(), abs=1e-4)


async def test_a_seed_fixes_the_answer_and_another_seed_changes_it(engine: InProcessEngine) -> None:
    prompt = [5, 9, 300, 41]
    first, again, other = [
        await engine.generate(prompt, Sampling(temperature=1.0, max_tokens=20, seed=seed))
        for seed in (3, 3, 4)
    ]
    assert first == again
    assert first.token_ids != other.token_ids


async def test_greedy_answers_equal_those_of_transformers(engine: InProcessEngine, folder: Path) -> None:
    policy = load_policy(folder)
    for prompt, _ in _requests(5):
        expected = policy.model.generate(
            torch.tensor([prompt]),
            max_new_tokens=12,
            do_sample=False,
            eos_token_id=policy.tokenizer.eos_token_id,
        )[0, len(prompt) :].tolist()
        answer = await engine.generate(prompt, Sampling(temperature=0.0, max_tokens=12, seed=1))
        assert answer.token_ids == expected


async def test_an_answer_that_is_cut_says_so_and_an_end_token_stops_it(engine: InProcessEngine) -> None:
    answers = await _together(engine, _requests(30))
    end = engine.tokenizer.eos_token_id
    for (_, sampling), answer in zip(_requests(30), answers, strict=True):
        assert (answer.finish == "stop") == (answer.token_ids[-1] == end)
        assert end not in answer.token_ids[:-1]
        if answer.finish == "length":
            assert len(answer.token_ids) == sampling.max_tokens
        assert len(answer.token_ids) == len(answer.logprobs) == len(answer.versions)


async def test_new_weights_are_stamped_on_the_answers_that_follow_and_no_answer_mixes_versions(
    engine: InProcessEngine, folder: Path, tmp_path: Path
) -> None:
    save_weights(tiny_model(folder, seed=2), tmp_path / "second.safetensors")
    requests = _requests(8)
    before = await _together(engine, requests)
    async with asyncio.TaskGroup() as group:
        early = [group.create_task(engine.generate(*request)) for request in requests]
        await asyncio.sleep(0)
        adoption = group.create_task(engine.adopt(7, tmp_path / "second.safetensors"))
        await asyncio.sleep(0)
        late = [group.create_task(engine.generate(*request)) for request in requests]
    assert adoption.done()
    assert engine.version == 7
    assert [set(task.result().versions) for task in early] == [{0}] * 8
    assert [set(task.result().versions) for task in late] == [{7}] * 8
    assert [task.result().token_ids for task in early] == [answer.token_ids for answer in before]
    assert [task.result().token_ids for task in late] != [answer.token_ids for answer in before]


async def test_weights_that_do_not_fit_are_refused_and_the_old_ones_go_on(
    engine: InProcessEngine, tmp_path: Path
) -> None:
    request = _requests(1)[0]
    before = await engine.generate(*request)
    (tmp_path / "torn.safetensors").write_bytes(b"\x10\x00\x00\x00")
    with pytest.raises(ModelFileError, match=r"torn\.safetensors is damaged"):
        await engine.adopt(1, tmp_path / "torn.safetensors")
    assert await engine.generate(*request) == before


async def test_a_prompt_read_before_gives_the_same_answer_until_the_weights_change(
    engine: InProcessEngine, folder: Path, tmp_path: Path
) -> None:
    save_weights(tiny_model(folder, seed=2), tmp_path / "second.safetensors")
    prompt = list(range(10, 60))
    first, second = [
        await engine.generate(prompt, Sampling(temperature=1.0, max_tokens=8, seed=1)) for _ in range(2)
    ]
    assert first == second
    await engine.adopt(1, tmp_path / "second.safetensors")
    third = await engine.generate(prompt, Sampling(temperature=1.0, max_tokens=8, seed=1))
    async with InProcessEngine(folder, PolicySettings(threads=1)) as fresh:
        await fresh.adopt(1, tmp_path / "second.safetensors")
        assert third == await fresh.generate(prompt, Sampling(temperature=1.0, max_tokens=8, seed=1))
    assert third.token_ids != first.token_ids


async def test_a_cancelled_call_leaves_room_for_others(engine: InProcessEngine) -> None:
    long = Sampling(temperature=1.0, max_tokens=1500, seed=1)
    calls = [asyncio.create_task(engine.generate([5, number], long)) for number in range(4, 12)]
    await asyncio.sleep(0.05)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    async with asyncio.timeout(20):
        answer = await engine.generate([5, 6], Sampling(temperature=1.0, max_tokens=3, seed=1))
    assert answer.token_ids


async def test_a_prompt_that_cannot_fit_is_refused_in_words(engine: InProcessEngine) -> None:
    with pytest.raises(EngineFailed, match="do not fit the model's 2048 positions"):
        await engine.generate([5] * 2040, Sampling(temperature=1.0, max_tokens=64, seed=1))


async def test_a_closed_engine_answers_nobody_and_fails_those_who_wait(folder: Path) -> None:
    engine = InProcessEngine(folder, PolicySettings(threads=1))
    waiting = asyncio.create_task(engine.generate([5], Sampling(temperature=1.0, max_tokens=1800, seed=2)))
    await asyncio.sleep(0)
    await engine.close()
    with pytest.raises(EngineFailed, match="closed"):
        await engine.generate([5], Sampling(temperature=1.0, max_tokens=2, seed=1))
    try:
        answer = await waiting
    except EngineFailed as error:
        assert "closed" in str(error)  # noqa: PT017
    else:
        assert answer.token_ids


async def test_the_event_loop_stays_free_while_the_engine_computes(engine: InProcessEngine) -> None:
    call = asyncio.create_task(engine.generate([7] * 900, Sampling(temperature=1.0, max_tokens=200, seed=1)))
    ticks = 0
    while not call.done():
        await asyncio.sleep(0.005)
        ticks += 1
    assert ticks >= 3


def test_tokens_are_drawn_with_their_probability() -> None:
    logits = torch.tensor([[2.0, 0.0, -1.0, 1.0]])
    count = 4000
    tokens, logprobs = draw(
        logits.repeat(count, 1),
        temperatures=[0.5] * count,
        uniforms=[(number + 0.5) / count for number in range(count)],
    )
    expected = torch.softmax(logits[0] / 0.5, dim=-1)
    for token in range(4):
        assert tokens.count(token) / count == pytest.approx(float(expected[token]), abs=1e-3)
    assert logprobs[tokens.index(1)] == pytest.approx(float(expected[1].log()), abs=1e-5)
