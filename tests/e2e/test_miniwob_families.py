"""All of MiniWoB++ in a real Chromium: what the table of families says about each page, and every demonstrator."""

from collections.abc import AsyncIterator

import msgspec
import pytest
import pytest_asyncio
from miniwob_player import play_all

from actors.environments.browser import BrowserHost
from actors.environments.demonstrator import DEMONSTRATORS
from actors.environments.miniwob.families import FAMILIES, USUAL
from actors.environments.miniwob.site import MiniwobSite
from actors.environments.miniwob.tasks import MiniwobTasks
from core.action import Action
from core.settings import ActorSettings

pytestmark = pytest.mark.asyncio(loop_scope="module")

TASKS = MiniwobTasks()
SOLVED = [family for family in FAMILIES if ("miniwob", family) in DEMONSTRATORS]
SOLVED.remove("button-delay")  # its reward hangs on how long a step takes: a busy machine loses it
FURTHER = [family for family in SOLVED if family not in USUAL]
SEEDS = (100, 103)
MANY = range(100, 120)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host() -> AsyncIterator[BrowserHost]:
    async with BrowserHost(ActorSettings(page_timeout_s=60.0, action_timeout_s=30.0)) as host:
        yield host


@pytest.mark.parametrize("family", FURTHER)
async def test_the_demonstrator_solves_the_family(host: BrowserHost, family: str) -> None:
    tasks = [TASKS.task(family, seed) for seed in SEEDS]
    played = await play_all(host, MiniwobSite(), tasks)
    lost = [(task.seed, one.results) for task, one in zip(tasks, played, strict=True) if not one.won(task)]
    assert lost == []


async def test_every_registered_page_starts(host: BrowserHost) -> None:
    """Those without a demonstrator are at least asked for their first page."""
    tasks = [TASKS.task(family, 3) for family in FAMILIES if ("miniwob", family) not in DEMONSTRATORS]
    for task, played in zip(tasks, await play_all(host, MiniwobSite(), tasks), strict=True):
        assert played.instruction
        assert any(node.id is not None for node in played.page.nodes), task.family


async def test_a_text_that_was_scrolled_is_read_from_there_and_its_end_shows(host: BrowserHost) -> None:
    world = await host.open_world(MiniwobSite())
    try:
        start = await world.reset(TASKS.task("scroll-text", 102))
        values = [start.observation.page.nodes[0].value or ""]
        for _ in range(20):
            outcome = await world.step(Action(name="Scroll Down"))
            if outcome.result != "ok":
                break
            values.append(outcome.observation.page.nodes[0].value or "")
        assert values[0].endswith("…")
        assert not values[0].startswith("…")
        assert len(set(values)) == len(values) > 2
        assert all(value.startswith("…") for value in values[1:])
        assert [value.endswith("…") for value in values] == [True] * (len(values) - 1) + [False]
    finally:
        await world.close()


@pytest.mark.slow
@pytest.mark.parametrize("family", SOLVED)
async def test_the_demonstrator_wins_on_nearly_every_seed(host: BrowserHost, family: str) -> None:
    tasks = [TASKS.task(family, seed) for seed in MANY]
    played = await play_all(host, MiniwobSite(), tasks)
    lost = [(task.seed, one.results) for task, one in zip(tasks, played, strict=True) if not one.won(task)]
    assert len(lost) <= len(tasks) * 0.05, lost


@pytest.mark.slow
async def test_a_seed_gives_the_same_start_on_a_fresh_page_and_on_one_that_was_played(
    host: BrowserHost,
) -> None:
    """Nothing of the last episode stays, in families that begin anew in place as in those that are loaded again."""
    fresh, used = MiniwobSite(), MiniwobSite()
    fresh.traits = msgspec.structs.replace(fresh.traits, reusable=False)
    differing: list[str] = []
    for family in FAMILIES:
        [first] = await play_all(host, fresh, [TASKS.task(family, 111)])
        await play_all(host, used, [TASKS.task(family, 112)])
        [again] = await play_all(host, used, [TASKS.task(family, 111)])
        if (first.instruction, first.digests[0]) != (again.instruction, again.digests[0]):
            differing.append(family)
    assert differing == []


@pytest.mark.slow
async def test_families_without_a_clock_repeat_page_by_page(host: BrowserHost) -> None:
    tasks = [TASKS.task(family, 113) for family, one in FAMILIES.items() if not one.clock]
    first = await play_all(host, MiniwobSite(), tasks)
    second = await play_all(host, MiniwobSite(), tasks)
    differing = [
        task.family
        for task, a, b in zip(tasks, first, second, strict=True)
        # the page after the end, which nobody acts on, may still be folding up
        if (a.digests[:-1], a.results) != (b.digests[:-1], b.results)
    ]
    assert differing == []


@pytest.mark.slow
async def test_exactly_the_fixed_families_ignore_their_seed(host: BrowserHost) -> None:
    starts: dict[str, set[tuple[str, str]]] = {family: set() for family in FAMILIES}
    for seed in (121, 122, 123, 124):
        tasks = [TASKS.task(family, seed) for family in FAMILIES]
        for task, played in zip(tasks, await play_all(host, MiniwobSite(), tasks), strict=True):
            starts[task.family].add((played.instruction, played.digests[0]))
    same = {family for family, seen in starts.items() if len(seen) == 1}
    assert same == {family for family, one in FAMILIES.items() if one.fixed}


@pytest.mark.slow
async def test_exactly_the_dated_families_show_the_day(host: BrowserHost) -> None:
    """The day is the same in every run; on another one, only these pages would differ."""
    tasks = [TASKS.task(family, 131) for family, one in FAMILIES.items()]
    usual, later = MiniwobSite(), MiniwobSite()
    script = later.traits.init_script.replace("Real.UTC(2018, 5, 15, 12)", "Real.UTC(2021, 1, 3, 12)")
    assert script != later.traits.init_script
    later.traits = msgspec.structs.replace(later.traits, init_script=script)
    later.name = "miniwob on another day"  # windows of a site are used again
    one = await play_all(host, usual, tasks)
    other = await play_all(host, later, tasks)
    differing = {
        task.family for task, a, b in zip(tasks, one, other, strict=True) if a.digests[0] != b.digests[0]
    }
    assert differing == {family for family, traits in FAMILIES.items() if traits.dated}
