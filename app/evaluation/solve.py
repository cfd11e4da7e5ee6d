"""`hindcast task solve`: measures how often the scripted demonstrators succeed in a real browser, by family."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from statistics import fmean

import msgspec
import structlog

from hindcast.actors.environments.base import Venue
from hindcast.actors.environments.browser import BrowserHost
from hindcast.actors.environments.plugin import DEMONSTRATORS
from hindcast.app.demonstrations.scripted import FIRST_SEED, demonstrate
from hindcast.app.system.sites import sites_running, task_sources
from hindcast.core.domain.task import Task
from hindcast.core.errors import EnvironmentFailed, SettingsError
from hindcast.core.settings.schema import Settings
from hindcast.core.text.nearest import advice

log = structlog.get_logger()


class Solved(msgspec.Struct, frozen=True, kw_only=True):
    """A demonstrator's results on one family."""

    family: str
    won: int
    episodes: int
    mean_steps: float
    """Mean steps of successful episodes."""


def solvable(environment: str, families: Sequence[str], settings: Settings) -> tuple[str, ...]:
    """The requested families, or all of the environment with a demonstrator.

    Raises:
        SettingsError: the environment or a family does not exist, or a family has no demonstrator.

    """
    sources = task_sources(settings)
    if environment not in sources:
        raise SettingsError(f"there is no environment {environment!r}; {advice(environment, sources)}")
    for family in families:
        sources[environment].task(family, 0)
        if (environment, family) not in DEMONSTRATORS:
            raise SettingsError(f"{environment}/{family} has no demonstrator")
    known = tuple(name for name in sources[environment].families() if (environment, name) in DEMONSTRATORS)
    return tuple(families) or known


async def solve(
    environment: str, families: Sequence[str], *, episodes: int, settings: Settings
) -> AsyncIterator[Solved]:
    """Play every family's demonstrator, family after family, on seeds of demonstrations."""
    source = task_sources(settings)[environment]
    async with sites_running(settings) as sites, BrowserHost(settings.actors) as host:
        slots = asyncio.Semaphore(settings.actors.contexts)
        for family in families:
            tasks = [source.task(family, FIRST_SEED + number) for number in range(episodes)]
            steps = await asyncio.gather(*(_steps(host, sites[environment], task, slots) for task in tasks))
            won = [count for count in steps if count]
            yield Solved(
                family=family,
                won=len(won),
                episodes=episodes,
                mean_steps=round(fmean(won), 1) if won else 0.0,
            )


async def _steps(host: BrowserHost, site: Venue, task: Task, slots: asyncio.Semaphore) -> int:
    """Steps of a successful episode; 0 for any other."""
    async with slots:
        world = await host.open_world(site)
        try:
            return len(await demonstrate(world, task))
        except EnvironmentFailed as error:
            log.warning("demonstration broke off", task=task.family, seed=task.seed, error=str(error))
            return 0
        finally:
            await world.close()
