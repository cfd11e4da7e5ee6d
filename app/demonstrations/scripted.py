"""One episode of a scripted demonstrator in a real browser, kept if its evaluator judges it a success.

Its task seeds differ from those of training and evaluation.
"""

import structlog

from hindcast.actors.environments.base import DemonstratedStep, EpisodeWorld
from hindcast.actors.environments.plugin import DEMONSTRATORS
from hindcast.actors.judges.rules import EVALUATORS
from hindcast.core.domain.action import Action
from hindcast.core.domain.task import Task
from hindcast.core.grammar.answer_parser import format_answer

FIRST_SEED = 2_000_000
"""First task seed of demonstrations; training and evaluation never use seeds from here on."""

log = structlog.get_logger()


async def demonstrate(world: EpisodeWorld, task: Task) -> tuple[DemonstratedStep, ...]:
    """The steps of one demonstrated episode; empty if it failed. Raises EnvironmentFailed."""
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
