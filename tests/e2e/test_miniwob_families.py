"""All of MiniWoB++ in a real Chromium: what the table of families says about each page, and every demonstrator."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest
import pytest_asyncio

from hindcast.actors.environments.browser import BrowserHost
from hindcast.actors.environments.miniwob.families import FAMILIES, USUAL
from hindcast.actors.environments.miniwob.site import MiniwobSite
from hindcast.actors.environments.miniwob.tasks import MiniwobTasks
from hindcast.actors.environments.plugin import DEMONSTRATORS
from hindcast.core.domain.action import Action
from hindcast.core.settings.schema import ActorSettings
from stories.miniwob_player import AT_ONCE, Sweep, play, play_all, start, start_all

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.browser]

TASKS = MiniwobTasks()
SOLVED = [family for family in FAMILIES if ("miniwob", family) in DEMONSTRATORS]
SOLVED.remove("button-delay")  # its reward hangs on how long a step takes: a busy machine loses it
FURTHER = [family for family in SOLVED if family not in USUAL]
SEEDS = (100, 103)
MANY = range(100, 110)
SOME = range(100, 104)
LONG_S = 900
"""For whichever test of the sweep comes first: it plays what the others look at, too."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host() -> AsyncIterator[BrowserHost]:
    async with BrowserHost(ActorSettings(page_timeout_s=60.0, action_timeout_s=30.0)) as host:
        yield host


@pytest.fixture(scope="module")
def sweep(host: BrowserHost) -> Sweep:
    return Sweep(host)


@pytest.mark.parametrize("family", FURTHER)
async def test_the_demonstrator_solves_the_family(sweep: Sweep, family: str) -> None:
    tasks = [TASKS.task(family, seed) for seed in SEEDS]
    played = await sweep.play(tasks)
    lost = [(task.seed, one.results) for task, one in zip(tasks, played, strict=True) if not one.won(task)]
    assert lost == []


async def test_every_registered_page_starts(host: BrowserHost) -> None:
    """Those without a demonstrator are at least asked for their first page."""
    tasks = [TASKS.task(family, 3) for family in FAMILIES if ("miniwob", family) not in DEMONSTRATORS]
    for task, played in zip(tasks, await start_all(host, MiniwobSite(), tasks), strict=True):
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
@pytest.mark.timeout(LONG_S)
@pytest.mark.parametrize("family", SOLVED)
async def test_the_demonstrator_wins_on_nearly_every_seed(sweep: Sweep, family: str) -> None:
    tasks = [TASKS.task(family, seed) for seed in MANY]
    played = await sweep.play(tasks)
    lost = [(task.seed, one.results) for task, one in zip(tasks, played, strict=True) if not one.won(task)]
    assert len(lost) <= (1 if FAMILIES[family].clock else 0), lost


@pytest.mark.slow
@pytest.mark.timeout(LONG_S)
async def test_a_seed_gives_the_same_start_on_a_fresh_page_and_on_one_that_was_played(
    host: BrowserHost,
) -> None:
    """Nothing of the last episode stays, in families that begin anew in place as in those that are loaded again."""

    async def differing(families: Sequence[str], lane: int) -> list[str]:
        fresh, used = MiniwobSite(), MiniwobSite()
        fresh.traits = msgspec.structs.replace(fresh.traits, reusable=False)
        used.name = f"miniwob in lane {lane}"  # its window serves nobody else in between
        found: list[str] = []
        for family in families:
            task = TASKS.task(family, 111)
            first = await start(host, fresh, task)
            await play(host, used, TASKS.task(family, 112))
            again = await start(host, used, task)
            if (first.instruction, first.digests[0]) != (again.instruction, again.digests[0]):
                found.append(family)
        return found

    lanes = [differing(list(FAMILIES)[lane::AT_ONCE], lane) for lane in range(AT_ONCE)]
    assert await asyncio.gather(*lanes) == [[]] * AT_ONCE


@pytest.mark.slow
@pytest.mark.timeout(LONG_S)
async def test_families_without_a_clock_repeat_page_by_page(host: BrowserHost, sweep: Sweep) -> None:
    tasks = [TASKS.task(family, SOME[0]) for family, one in FAMILIES.items() if not one.clock]
    first = await sweep.play(tasks)
    second = await play_all(host, MiniwobSite(), tasks)
    differing = [
        task.family
        for task, a, b in zip(tasks, first, second, strict=True)
        # the page after the end, which nobody acts on, may still be folding up
        if (a.digests[:-1], a.results) != (b.digests[:-1], b.results)
    ]
    assert differing == []


@pytest.mark.slow
@pytest.mark.timeout(LONG_S)
async def test_exactly_the_fixed_families_ignore_their_seed(sweep: Sweep) -> None:
    starts: dict[str, set[tuple[str, str]]] = {family: set() for family in FAMILIES}
    tasks = [TASKS.task(family, seed) for family in FAMILIES for seed in SOME]
    for task, played in zip(tasks, await sweep.play(tasks), strict=True):
        starts[task.family].add((played.instruction, played.digests[0]))
    same = {family for family, seen in starts.items() if len(seen) == 1}
    assert same == {family for family, one in FAMILIES.items() if one.fixed}


@pytest.mark.slow
@pytest.mark.timeout(LONG_S)
async def test_exactly_the_dated_families_show_the_day(host: BrowserHost) -> None:
    """The day is the same in every run; on another one, only these pages would differ."""
    tasks = [TASKS.task(family, 131) for family, one in FAMILIES.items()]
    usual, later = MiniwobSite(), MiniwobSite()
    script = later.traits.init_script.replace("Real.UTC(2018, 5, 15, 12)", "Real.UTC(2021, 1, 3, 12)")
    assert script != later.traits.init_script
    later.traits = msgspec.structs.replace(later.traits, init_script=script)
    later.name = "miniwob on another day"  # windows of a site are used again
    one = await start_all(host, usual, tasks)
    other = await start_all(host, later, tasks)
    differing = {
        task.family for task, a, b in zip(tasks, one, other, strict=True) if a.digests[0] != b.digests[0]
    }
    assert differing == {family for family, traits in FAMILIES.items() if traits.dated}
