"""Record what the scripted demonstrators do in a real browser, as samples for training the base policy.

Only episodes that their evaluator calls a success are kept. Tasks have seeds of their own, apart from those of
training and evaluation.
"""

import asyncio
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

import structlog

from hindcast.actors.environments.base import EpisodeWorld, TaskSource
from hindcast.actors.environments.browser import BrowserHost
from hindcast.actors.environments.demonstrator import DEMONSTRATORS
from hindcast.actors.judges.rules import EVALUATORS
from hindcast.app.bootstrap import task_sources
from hindcast.app.system.sites import sites_running
from hindcast.core.domain.action import Action
from hindcast.core.domain.task import Task
from hindcast.core.errors import EnvironmentFailed
from hindcast.core.grammar.answer_parser import format_answer
from hindcast.core.settings.schema import Settings
from hindcast.learner.base_policy.lookups import Sample
from hindcast.learner.base_policy.samples import append_samples

FIRST_SEED = 2_000_000
"""Demonstrations use task seeds from here on; training and evaluation never do."""

log = structlog.get_logger()


async def record(families: dict[str, int], path: Path, *, settings: Settings, first: int = FIRST_SEED) -> int:
    """Append successful episodes to `path`, for each `environment/family` as many as asked; returns the steps written.

    A family whose demonstrator fails twice as often as asked ends early, with a warning.
    """
    tasks = _tasks(families, task_sources(settings), first)
    steps = 0
    lock = asyncio.Lock()
    async with sites_running(settings) as sites, BrowserHost(settings.actors) as host:

        async def work() -> None:
            nonlocal steps
            for task, wanted in tasks:
                if wanted.left <= 0:
                    continue
                wanted.left -= 1
                world = await host.open_world(sites[task.environment])
                try:
                    samples = await demonstrate(world, task)
                except EnvironmentFailed as error:
                    log.warning("demonstration broke off", task=task.family, seed=task.seed, error=str(error))
                    samples = ()
                finally:
                    await world.close()
                if not samples:
                    wanted.left += 1
                async with lock:
                    steps += await asyncio.to_thread(append_samples, path, samples)

        async with asyncio.TaskGroup() as group:
            for _ in range(settings.actors.contexts):
                group.create_task(work())
    return steps


async def demonstrate(world: EpisodeWorld, task: Task) -> tuple[Sample, ...]:
    """The steps of one demonstrated episode; none when it did not succeed. Raises EnvironmentFailed."""
    next_action = DEMONSTRATORS[(task.environment, task.family)]
    start = await world.reset(task)
    observation = start.observation
    actions: list[Action] = []
    answers: list[str] = []
    samples: list[Sample] = []
    answer: str | None = None
    for _ in range(task.max_steps):
        action = next_action(task, start.instruction, observation, tuple(actions))
        samples.append(
            Sample(
                instruction=start.instruction,
                answers=tuple(answers),
                page=observation.page,
                action=action,
                source=f"{task.environment}/{task.family}",
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


class _Wanted:
    """Episodes of a family that are still to be recorded."""

    def __init__(self, left: int) -> None:
        self.left = left


def _tasks(
    families: dict[str, int], sources: dict[str, TaskSource], first: int
) -> Iterator[tuple[Task, _Wanted]]:
    """Tasks of all families in turn, each family's seeds upwards, at most twice as many as asked."""
    wanted = {name: _Wanted(number) for name, number in families.items()}
    for seed in count(first):
        open_families: Sequence[str] = [name for name in families if seed - first < 2 * families[name]]
        if not open_families:
            return
        for name in open_families:
            environment, _, family = name.partition("/")
            if wanted[name].left > 0:
                yield sources[environment].task(family, seed), wanted[name]
