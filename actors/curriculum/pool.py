"""The tasks a run draws from: every configured family, with its training seeds."""

from collections.abc import Collection, Iterable, Mapping

from hindcast.actors.environments.base import TaskSource
from hindcast.core.domain.task import Task
from hindcast.core.errors import SettingsError
from hindcast.core.settings.schema import CurriculumSettings
from hindcast.core.text.nearest import advice

Pool = dict[str, dict[str, Task]]
"""Family (`store/find_price`) -> task id -> task, both in a fixed order."""


def configured_pool(sources: Mapping[str, TaskSource], settings: CurriculumSettings) -> Pool:
    """The tasks that the settings name, or seeds 0, 1, 2 … of their families; no family named: the environments' defaults.

    Raises:
        SettingsError: an environment or a family does not exist, or there is none at all.
    """
    environments = {name: _source(sources, name) for name in settings.environments}
    if settings.tasks:
        return _named_pool(environments, settings.tasks)
    known = [f"{name}/{family}" for name, source in environments.items() for family in source.families()]
    usual = [f"{name}/{family}" for name, source in environments.items() for family in source.usual()]
    unknown = [family for family in settings.families if family not in known]
    if unknown:
        raise SettingsError(
            f"curriculum.families names {unknown[0]!r}, which no environment in curriculum.environments offers. "
            f"{_reason(environments, unknown[0]) or 'They offer: ' + ', '.join(known)}"
        )
    chosen = settings.families or tuple(usual)
    if not chosen:
        raise SettingsError(
            "curriculum.environments is empty: there is nothing to attempt. Name store or miniwob."
        )
    pool: Pool = {}
    for family in chosen:
        environment, _, name = family.partition("/")
        source = environments[environment]
        pool[family] = _by_id(source.task(name, seed) for seed in range(settings.task_pool))
    return pool


def _named_pool(environments: Mapping[str, TaskSource], names: Iterable[str]) -> Pool:
    """Single tasks by name, as `task_name` gives them."""
    pool: Pool = {}
    for name in names:
        family, _, seed = name.rpartition(":")
        environment, _, kind = family.partition("/")
        if environment not in environments:
            raise SettingsError(
                f"curriculum.tasks names {name!r}, which is of none of curriculum.environments: {', '.join(environments)}"
            )
        if not (seed.isascii() and seed.isdecimal()):
            raise SettingsError(f"curriculum.tasks names {name!r}: a task is written environment/family:seed")
        task = environments[environment].task(kind, int(seed))
        pool.setdefault(family, {})[task.id] = task
    return pool


def task_name(task: Task) -> str:
    """The name of a task in `curriculum.tasks`: `store/find_price:3`."""
    return f"{task.environment}/{task.family}:{task.seed}"


def demonstrable_pool(pool: Pool, demonstrators: Collection[tuple[str, str]]) -> Pool:
    """The families of a pool that have a demonstrator; `demonstrators` are pairs (environment, family)."""
    found = {}
    for family, tasks in pool.items():
        environment, _, name = family.partition("/")
        if (environment, name) in demonstrators:
            found[family] = tasks
    return found


def _source(sources: Mapping[str, TaskSource], environment: str) -> TaskSource:
    if environment not in sources:
        raise SettingsError(f"curriculum.environments names {environment!r}; {advice(environment, sources)}")
    return sources[environment]


def _reason(sources: Mapping[str, TaskSource], family: str) -> str:
    """Why the environment has no such family, if it can say."""
    environment, _, name = family.partition("/")
    try:
        if environment in sources:
            sources[environment].task(name, 0)
    except SettingsError as error:
        return str(error)
    return ""


def _by_id(tasks: Iterable[Task]) -> dict[str, Task]:
    return {task.id: task for task in tasks}


def admitted_pool(pool: Pool, admitted: Collection[str]) -> Pool:
    """The part of a pool that has been admitted."""
    return {
        family: {key: task for key, task in tasks.items() if key in admitted}
        for family, tasks in pool.items()
    }


def generated_pool(tasks: Iterable[Task]) -> Pool:
    """Generated tasks as a pool."""
    pool: Pool = {}
    for task in tasks:
        pool.setdefault(family_of(task), {})[task.id] = task
    return pool


def family_of(task: Task) -> str:
    """A task's family as settings name it: `store/find_price`."""
    return f"{task.environment}/{task.family}"


def joined(*pools: Pool) -> Pool:
    """All tasks of several pools."""
    pool: Pool = {}
    for one in pools:
        for family, tasks in one.items():
            pool[family] = {**pool.get(family, {}), **tasks}
    return pool
