"""What the curriculum draws from under given settings; made anew when they change."""

from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec
import structlog

from hindcast.actors.curriculum.evolution import Evolver
from hindcast.actors.curriculum.feasibility import FeasibilityChecker, Valuer
from hindcast.actors.curriculum.pool import (
    Pool,
    configured_pool,
    demonstrable_pool,
    demonstrated_pool,
    held_out_tasks,
)
from hindcast.actors.curriculum.task_generator import TaskGenerator
from hindcast.actors.environments.base import TaskSource
from hindcast.actors.environments.plugin import ENVIRONMENTS, Environment
from hindcast.core.domain.task import Task
from hindcast.core.errors import SettingsError
from hindcast.core.plugins import PluginTable
from hindcast.core.rl.algorithm import traits_of
from hindcast.core.settings.schema import Settings
from hindcast.storage.blobs.store import BlobStore

logger = structlog.get_logger(__name__)


class TaskPools(msgspec.Struct, frozen=True):
    """Tasks, and who makes more of them."""

    pool: Pool
    demonstrable: Pool
    """The part of it that has a demonstrator."""
    held_out: tuple[Task, ...]
    """The tasks of evaluations; none where the run has no evaluations."""
    sources: Mapping[str, TaskSource]
    evolver: Evolver


def _is_recorded(environment: Environment) -> bool:
    return environment.recorded_by_people


_RECORDED = PluginTable(ENVIRONMENTS, _is_recorded)
"""Whether people record the demonstrations of an environment."""


def _test_families(environment: Environment) -> Callable[[TaskSource], Sequence[str]]:
    return environment.evaluation_families


_TEST_FAMILIES = PluginTable(ENVIRONMENTS, _test_families)
"""Families of an environment that are only for evaluation, where it has some."""
MakePools = Callable[[Settings], TaskPools]


def pools(
    sources: Mapping[str, TaskSource], demonstrators: Collection[tuple[str, str]], settings: Settings
) -> tuple[Pool, Pool]:
    """The run's tasks, and those of them that can be shown.

    Raises:
        SettingsError: the settings name an environment or a family that does not exist, or compare with demonstrations where
            nobody can show any.

    """
    pool = configured_pool(sources, settings.curriculum)
    demonstrations = settings.curriculum.demonstrations
    demonstrable = demonstrable_pool(pool, demonstrators)
    if traits_of(settings.learner.algorithm).compares == "pairs":
        # a failure is compared with a demonstration of the same task: nothing else is attempted
        if demonstrations and not demonstrable:
            raise SettingsError(_nobody_shows(pool, demonstrations))
        pool = demonstrable = demonstrated_pool(
            demonstrable, count=demonstrations, run_seed=settings.run.seed
        )
    return pool, demonstrable


def held_out(sources: Mapping[str, TaskSource], settings: Settings, pool: Pool) -> tuple[Task, ...]:
    """The tasks of the run's evaluations; none where it has no evaluations. Raises SettingsError as `held_out_tasks`.

    Where the settings name no families, they are those of the pool, or the test families of an environment that has some.
    """
    if not settings.evaluation.every:
        return ()
    families: dict[str, None] = {}
    for family in pool:
        name = family.partition("/")[0]
        test_families = _TEST_FAMILIES[name](sources[name]) if name in _TEST_FAMILIES else ()
        families |= (
            dict.fromkeys(f"{name}/{test_family}" for test_family in test_families)
            if test_families
            else {family: None}
        )
    tasks = held_out_tasks(sources, settings.evaluation, families=tuple(families), pool=pool)
    if not tasks:
        logger.warning(
            "nothing is evaluated: every task of the evaluation's families is trained on",
            families=[*families],
        )
    return tasks


def require_demonstrations(
    pool: Pool, demonstrable: Pool, *, settings: Settings, recorded: int, run: str
) -> None:
    """Assert that a demonstrator exists while demonstrations are missing: `recorded` of the settings' number exist.

    Raises SettingsError. What was shown already needs nobody who could show it again.
    """
    required = settings.curriculum.demonstrations
    if required <= recorded or demonstrable:
        return
    names = {family.partition("/")[0] for family in pool}
    if any(_RECORDED[name] for name in names if name in _RECORDED):
        raise SettingsError(
            f"curriculum.demonstrations = {required}, and people have recorded {recorded} in this run, whose families have no "
            f"scripted demonstrator. Record {required - recorded} more: hindcast record --task NAME {run}"
        )
    raise SettingsError(_nobody_shows(pool, required - recorded))


def _nobody_shows(pool: Pool, missing: int) -> str:
    return (
        f"curriculum.demonstrations wants {missing} more, but none of the run's families has a demonstrator: "
        f"{', '.join(pool)}. Set it to 0, or add a family that has one (docs/miniwob.md lists those that have none)."
    )


def pools_maker(
    sources: Mapping[str, TaskSource],
    demonstrators: Collection[tuple[str, str]],
    blobs: BlobStore,
    *,
    valuer: Valuer | None,
    inventor: TaskGenerator | None,
    checker: FeasibilityChecker | None,
) -> MakePools:
    """Return a function that makes the task pools for any settings; it raises as `pools` does."""

    def make(settings: Settings) -> TaskPools:
        pool, demonstrable = pools(sources, demonstrators, settings)
        evolver = Evolver(
            sources=sources,
            pool=pool,
            settings=settings,
            blobs=blobs,
            valuer=valuer,
            inventor=inventor,
            checker=checker,
        )
        return TaskPools(
            pool=pool,
            demonstrable=demonstrable,
            held_out=held_out(sources, settings, pool),
            sources=sources,
            evolver=evolver,
        )

    return make
