"""The engine's benchmark asks the same of both, and what was recorded keeps its shape without its texts."""

from pathlib import Path

import pytest

from bench.engine import Answering, ask_all, tokens_of, write_endless
from bench.engine_calls import (
    Call,
    different_pages,
    episodes_of,
    groups,
    recorded_episodes,
    shapes_of,
)
from bench.engine_vllm import mismatch_of
from fakes.tiny_policy import write_tiny_policy
from hindcast.actors.engines.in_process import InProcessEngine
from hindcast.core.models.policy import load_policy
from hindcast.core.models.tokenizer import load_tokenizer
from hindcast.core.settings.schema import PolicySettings

pytestmark = pytest.mark.torch


def test_recorded_calls_keep_lengths_and_what_their_prompts_share() -> None:
    page, longer = (1, 2, 3, 4, 5, 6), (1, 2, 3, 9)
    recorded = [(Call(page, 3), Call(longer, 4)), (Call(page, 5),)]
    shapes = shapes_of(recorded)
    assert shapes.prompts == [(0, 0, 6), (0, 3, 4)]
    assert shapes.episodes == [[(0, 3), (1, 4)], [(0, 5)]]
    (first, second), (again,) = episodes_of(shapes)
    assert first.prompt_ids == again.prompt_ids
    assert second.prompt_ids[:3] == first.prompt_ids[:3]
    assert (len(first.prompt_ids), len(second.prompt_ids)) == (6, 4)
    assert [first.answer_tokens, second.answer_tokens, again.answer_tokens] == [3, 4, 5]


def test_the_recording_that_ships_holds_whole_groups_that_begin_with_one_page() -> None:
    episodes = recorded_episodes(1000)
    assert len(episodes) % 8 == 0
    for begin in range(0, len(episodes), 8):
        assert len({episode[0].prompt_ids for episode in episodes[begin : begin + 8]}) == 1
    assert max(len(call.prompt_ids) for episode in episodes for call in episode) <= 1024


async def test_both_answer_every_call_at_full_length(tmp_path: Path) -> None:
    folder = write_endless(write_tiny_policy(tmp_path / "tiny"), tmp_path / "endless")
    policy = load_policy(folder)
    tokenizer = policy.tokenizer
    assert tuple(policy.stops) == (tokenizer.pad_token_id,), "nothing that was ever seen ends an answer"
    grouped = groups(tokenizer, contexts=8, steps=2, answer_tokens=4)
    assert len({episode[0] for episode in grouped}) == 1
    assert len({episode[1] for episode in grouped}) == 8
    episodes = different_pages(tokenizer, contexts=2, steps=1, answer_tokens=3)
    answering = Answering(folder, contexts=2, threads=1)
    assert await answering.ours(episodes) > 0
    assert await answering.one_at_a_time(episodes) > 0
    assert answering.drawn == {"ours": 6, "generate": 6}


async def test_answers_are_held_against_what_the_learner_computes_from_the_weights_given(
    tmp_path: Path,
) -> None:
    folder, other = (write_tiny_policy(tmp_path / f"tiny-{seed}", seed=seed) for seed in (1, 2))
    episodes = different_pages(load_tokenizer(folder), contexts=3, steps=1, answer_tokens=5)
    async with InProcessEngine(folder, PolicySettings(threads=1)) as engine:
        asked = await ask_all(engine, episodes, contexts=2)
    own, foreign = (mismatch_of(weights, "in process", asked) for weights in (folder, other))
    assert own.tokens == foreign.tokens == tokens_of(asked) > 0
    assert 0 <= own.mismatch_kl < 1e-6
    assert own.largest < 1e-3
    assert foreign.mismatch_kl > 0.01
    assert foreign.largest > 0.1
