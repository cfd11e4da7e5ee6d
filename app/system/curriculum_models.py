"""Who invents tasks for the curriculum, who says whether they can be done and who values them, as a run's settings say."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hindcast.actors.curriculum.feasibility import FeasibilityChecker, Valuer
from hindcast.actors.curriculum.task_generator import TaskGenerator
from hindcast.app.runs.runs import RunHandle
from hindcast.app.system.home import home_folder
from hindcast.core.rl.algorithm import traits_of
from hindcast.core.rl.combined_state import ORM
from hindcast.core.settings.endpoint import ENDPOINT
from hindcast.core.settings.schema import Settings


@asynccontextmanager
async def asking(settings: Settings) -> AsyncIterator[tuple[TaskGenerator | None, FeasibilityChecker | None]]:
    """Who invents tasks in words, where the settings want that, and who can be asked whether a task can be done.

    The latter wherever there is an endpoint: `evolution.feasibility` may be changed while the run goes on.
    """
    if not (settings.evolution.generator and settings.endpoint.base_url and settings.endpoint.model):
        yield None, None
        return
    from hindcast.actors.endpoint.client import Endpoint
    from hindcast.app.system.judges import MEMORY

    async with Endpoint(
        settings.endpoint, memory=home_folder() / MEMORY, content=settings.telemetry.content
    ) as endpoint:
        invents = settings.evolution.generator == ENDPOINT
        yield (
            TaskGenerator(endpoint, run_seed=settings.run.seed) if invents else None,
            FeasibilityChecker(endpoint),
        )


def valuer_of(handle: RunHandle) -> Valuer | None:
    """The model that values generated tasks, where the learner trains it; it loads torch."""
    settings = handle.settings
    by_orm = settings.evolution.valued_by == ORM
    if not settings.evolution.generator or (
        not traits_of(settings.learner.algorithm).learns_in_phases and not by_orm
    ):
        return None
    from hindcast.actors.engines.value_models import CriticValuer, OutcomeValuer
    from hindcast.core.models.folders import policy_folder

    if by_orm:
        return OutcomeValuer(policy_folder(settings.policy.base), blobs=handle.blobs, settings=settings)

    return CriticValuer(
        policy_folder(settings.policy.base),
        settings.learner.critic_heads,
        blobs=handle.blobs,
        settings=settings,
    )
