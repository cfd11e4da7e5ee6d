"""Episodes put together from a log: which ones, and what of them."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from hindcast.actors.replay.recorded import (
    EpisodeSelection,
    NoSuchEpisode,
    map_concurrently,
    recorded_episodes,
)
from hindcast.events.catalogue import EpisodeEnded, EpisodeRequested, EpisodeStarted, StepTaken
from hindcast.events.envelope import Recorded
from hindcast.events.log.episode_assembler import AssembledEpisode
from stories.synthetic_run import recorded_run


async def gathered(wanted: EpisodeSelection) -> tuple[list[AssembledEpisode], list[Recorded]]:
    log, history = await recorded_run(groups=8)
    return [episode async for episode in recorded_episodes(log, wanted)], history


async def test_every_begun_episode_comes_with_its_steps_and_its_end() -> None:
    episodes, history = await gathered(EpisodeSelection())
    begun = {r.fact.episode for r in history if isinstance(r.fact, EpisodeStarted)}
    steps = sum(isinstance(r.fact, StepTaken) for r in history)
    ended = {r.fact.episode: r.envelope.id for r in history if isinstance(r.fact, EpisodeEnded)}
    assert {episode.name for episode in episodes} == begun
    assert sum(len(episode.steps) for episode in episodes) == steps
    assert {e.name: e.end_id for e in episodes if isinstance(e.end, EpisodeEnded)} == ended
    for episode in episodes:
        assert [step.fact.index for step in episode.steps] == list(range(len(episode.steps)))
        assert {step.fact.episode for step in episode.steps} == {episode.name}


async def test_a_sample_is_the_same_each_time_another_with_another_seed_and_grows_by_adding() -> None:
    async def names(sample: int, seed: int = 1) -> set[str]:
        return {episode.name for episode in (await gathered(EpisodeSelection(sample=sample, seed=seed)))[0]}

    assert len(await names(5)) == 5
    assert await names(5) == await names(5)
    assert await names(5) < await names(9)
    assert await names(5) != await names(5, seed=2)


async def test_conditions_narrow_and_a_sample_is_drawn_of_what_they_leave() -> None:
    wanted = EpisodeSelection(
        families=frozenset({"store/checkout", "click-button"}), origin="online", sample=3
    )
    episodes, history = await gathered(wanted)
    assert len(episodes) == 3
    assert {episode.family for episode in episodes} <= {"store/checkout", "miniwob/click-button"}
    requests = {r.fact.episode: r.fact for r in history if isinstance(r.fact, EpisodeRequested)}
    assert {requests[episode.name].origin for episode in episodes} == {"online"}


async def test_an_episode_that_is_not_there_is_named() -> None:
    with pytest.raises(NoSuchEpisode, match="'ep_nowhere'"):
        await gathered(EpisodeSelection(episodes=frozenset({"ep_nowhere"})))


async def test_without_steps_none_are_kept() -> None:
    log, _ = await recorded_run()
    episodes = [episode async for episode in recorded_episodes(log, EpisodeSelection(), steps=False)]
    assert episodes
    assert not any(episode.steps for episode in episodes)


async def test_a_stream_is_worked_on_a_few_at_a_time_and_comes_out_in_order() -> None:
    working, most, given = 0, 0, 0

    async def numbers() -> AsyncGenerator[int, None]:
        nonlocal given
        for number in range(20):
            given = number + 1
            yield number

    async def work(number: int) -> int:
        nonlocal working, most
        working += 1
        most = max(most, working)
        await asyncio.sleep(0.001 * (number % 3))
        assert given <= number + 10  # the stream is not read ahead of the work
        working -= 1
        return number * number

    assert await map_concurrently(numbers(), work, at_once=3) == [number * number for number in range(20)]
    assert most == 3
