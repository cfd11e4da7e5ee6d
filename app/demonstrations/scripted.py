"""Runs scripted demonstrators in a real browser, for one episode or for `hindcast task solve`, which counts successes.

An episode is kept if its evaluator judges it a success. Its task seeds differ from those of training and evaluation.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from statistics import fmean

import msgspec
import structlog

from hindcast.actors.environments.base import DemonstratedStep, EpisodeWorld, Venue
from hindcast.actors.environments.browser import BrowserHost
from hindcast.actors.environments.plugin import DEMONSTRATORS, ENVIRONMENTS, find_environment
from hindcast.actors.judges.rules import EVALUATORS
from hindcast.app.system.sites import sites_running, task_sources
from hindcast.core.domain.action import Action
from hindcast.core.domain.task import Task
from hindcast.core.errors import EnvironmentFailed, SettingsError
from hindcast.core.grammar.answer_parser import format_answer
from hindcast.core.plugins import own_names
from hindcast.core.settings.schema import Settings
from hindcast.core.text.nearest import advice

FIRST_SEED = 2_000_000
"""First task seed of demonstrations; training and evaluation never use seeds from here on."""

log = structlog.get_logger()


async def demonstrate(world: EpisodeWorld, task: Task) -> tuple[DemonstratedStep, ...]:
    """Play one episode with its demonstrator; returns the steps, none if it failed. Raises EnvironmentFailed."""
    next_action = DEMONSTRATORS[(task.environment, task.family)]
    start = await world.reset(task)
    observation = start.observation
    actions: list[Action] = []
    answers: list[str] = []
    samples: list[DemonstratedStep] = []
    answer: str | None = None
    for _ in range(task.max_steps):
        action = next_action(task, start.instruction, observation, tuple(actions))
        samples.append(
            DemonstratedStep(
                instruction=start.instruction,
                answers=tuple(answers),
                page=observation.page,
                action=action,
                source=task.full_family,
                seed=task.seed,
            )
        )
        actions.append(action)
        answers.append(format_answer(action, observation.page))
        if action.name == "exit":
            answer = action.argument
            break
        outcome = await world.step(action)
        observation = outcome.observation
        if outcome.done:
            break
    judgment = EVALUATORS[task.environment](task, await world.finish(answer))
    if judgment.outcome == "success":
        return tuple(samples)
    log.warning("demonstration failed", family=task.family, seed=task.seed, reason=judgment.reason)
    return ()


class Solved(msgspec.Struct, frozen=True, kw_only=True):
    """A demonstrator's results on one family."""

    family: str
    won: int
    episodes: int
    mean_steps: float
    """Mean number of steps of successful episodes."""


def opening(environment: str) -> list[str]:
    """Return the overrides that open an environment of another package; none for a built-in one, which is always open.

    Raises:
        PluginError: no package has an environment of this name.

    """
    if environment in own_names(ENVIRONMENTS):
        return []
    find_environment(environment)
    return [f"curriculum.environments={json.dumps([environment])}"]


def solvable(environment: str, families: Sequence[str], settings: Settings) -> tuple[str, ...]:
    """Return the requested families, or all families of the environment with a demonstrator.

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
    """Play every family's demonstrator, one family after the other, on seeds of demonstrations."""
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
    """Play one episode; returns its number of steps if it succeeded, else 0."""
    async with slots:
        world = await host.open_world(site)
        try:
            return len(await demonstrate(world, task))
        except EnvironmentFailed as error:
            log.warning("demonstration broke off", task=task.family, seed=task.seed, error=str(error))
            return 0
        finally:
            await world.close()
