"""What `hindcast bench actor` compares: the same work on every side, in a real Chromium."""

from pathlib import Path

import pytest

from bench.actor import ActorBench, DifferentWork
from bench.actor_bare import bare_pages, play_bare, record
from bench.actor_plays import FAMILIES, IN_A_ROW, Play, Tally, page_seed, problems, spread
from bench.actor_world import play_worlds
from hindcast.actors.environments.browser import BrowserHost
from hindcast.core.settings.schema import ActorSettings

pytestmark = pytest.mark.browser


async def test_ours_and_the_bare_loop_win_every_recorded_episode_with_the_same_clicks() -> None:
    settings = ActorSettings(contexts=2)
    async with bare_pages(2) as pages:
        plays = await record(pages[0], IN_A_ROW + 2)
        bare = await play_bare(pages, plays)
    async with BrowserHost(settings) as host:
        ours = await play_worlds(host, plays, contexts=2)
    assert {play.task.family for play in plays} == set(FAMILIES[:2])
    assert bare.episodes == bare.won == ours.episodes == ours.won == len(plays)
    assert bare.steps == ours.steps == sum(len(play.clicks) for play in plays) >= len(plays)
    assert "visible things" in ours.contents["nodes"]


async def test_problems_come_family_by_family_with_the_seed_that_browsergym_gives_the_page() -> None:
    found = list(problems(2 * IN_A_ROW, first=7))
    assert [task.family for task, _ in found] == [FAMILIES[0]] * IN_A_ROW + [FAMILIES[1]] * IN_A_ROW
    assert [seed for _, seed in found] == list(range(7, 7 + 2 * IN_A_ROW))
    assert [task.seed for task, seed in found] == [page_seed(seed) for _, seed in found]
    assert (page_seed(0), page_seed(1)) == (985772, 128037), "numpy's RandomState(seed).randint(0, 1000000)"


async def test_a_short_share_of_the_plays_takes_every_family_in_turn() -> None:
    plays = [Play(task=task, gym_seed=seed, clicks=()) for task, seed in problems(len(FAMILIES) * IN_A_ROW)]
    short = spread(plays, len(FAMILIES) + 1)
    assert [play.task.family for play in short] == [*FAMILIES, FAMILIES[0]]
    assert spread(plays, len(plays)) != plays
    assert sorted(play.gym_seed for play in spread(plays, len(plays))) == list(range(len(plays)))


def test_a_side_that_loses_what_was_won_gives_no_figure(tmp_path: Path) -> None:
    bench = ActorBench(home=tmp_path, settings=ActorSettings(), said=lambda _line: None)
    assert bench._rate("ours", Tally(episodes=2, steps=4, won=2, wall_s=2.0)) == 2.0
    with pytest.raises(DifferentWork, match="won 1 of 2"):
        bench._rate("ours", Tally(episodes=2, steps=4, won=1, wall_s=2.0))
