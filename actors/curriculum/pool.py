"""The tasks that a run draws from, and which of them comes next: a seeded, deterministic function of the curriculum's state.

Groups teach only where the rewards of their members differ, so families and tasks with a success rate away from 0 and 1
come more often (`curriculum.sampling = "learnable"`; `"uniform"` draws each alike). None is forgotten: every family is tried once before any preference counts, every `COVER_EVERY`-th group
goes to the family tried least, and the preference never becomes 0. So mastered tasks stay measured, and hopeless ones
get another chance with a better policy.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal

from hindcast.actors.curriculum.state import CurriculumState
from hindcast.actors.environments.base import TaskSource
from hindcast.core.domain.task import Task, evaluation_seeds
from hindcast.core.errors import SettingsError
from hindcast.core.seeds import derive_seed
from hindcast.core.settings.schema import CurriculumSettings, EvaluationSettings
from hindcast.core.text.nearest import advice
from hindcast.events.catalogue.curriculum import ONLINE

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
    offered = [f"{name}/{family}" for name, source in environments.items() for family in source.families()]
    usual = [f"{name}/{family}" for name, source in environments.items() for family in source.usual()]
    unknown = [family for family in settings.families if family not in offered]
    if unknown:
        raise SettingsError(
            f"curriculum.families names {unknown[0]!r}, which no environment in curriculum.environments offers. "
            f"{_reason(environments, unknown[0]) or 'They offer: ' + ', '.join(offered)}"
        )
    families = settings.families or tuple(usual)
    if not families:
        raise SettingsError(
            "curriculum.environments is empty: there is nothing to attempt. Name store or miniwob."
        )
    pool: Pool = {}
    for family in families:
        environment, _, name = family.partition("/")
        source = environments[environment]
        pool[family] = _by_id(source.task(name, seed) for seed in range(settings.task_pool))
    return pool


def _named_pool(environments: Mapping[str, TaskSource], names: Iterable[str]) -> Pool:
    """Single tasks by `Task.name`."""
    pool: Pool = {}
    for name in names:
        family, _, seed = name.rpartition(":")
        environment = family.partition("/")[0]
        if environment not in environments:
            raise SettingsError(
                f"curriculum.tasks names {name!r}, which is of none of curriculum.environments: {', '.join(environments)}"
            )
        if not (seed.isascii() and seed.isdecimal()):
            raise SettingsError(f"curriculum.tasks names {name!r}: a task is written environment/family:seed")
        task = named_task(environments, name)
        pool.setdefault(family, {})[task.id] = task
    return pool


def named_task(sources: Mapping[str, TaskSource], name: str) -> Task:
    """The task of a `Task.name`. Raises SettingsError where its environment or family does not exist (any more)."""
    environment, _, kind = family_of_name(name).partition("/")
    return _source(sources, environment).task(kind, int(name.rpartition(":")[2]))


def family_of_name(name: str) -> str:
    """The family in a `Task.name`: `store/find_price`."""
    return name.rpartition(":")[0]


def held_out_tasks(
    sources: Mapping[str, TaskSource], settings: EvaluationSettings, *, families: Sequence[str], pool: Pool
) -> tuple[Task, ...]:
    """The tasks of an evaluation: its families in turn, at seeds of evaluations, without the tasks of the pool.

    `families`: those that are used where the settings name none. A family whose tasks are a fixed list may have none that
    is held out. Raises SettingsError where an environment or a family does not exist.
    """
    family_names = settings.families or families
    trained = {key for tasks in pool.values() for key in tasks}
    held_out: dict[str, Task] = {}
    for family, seed in evaluation_seeds(family_names, settings.episodes) if family_names else ():
        task = named_task(sources, f"{family}:{seed}")
        if task.id not in trained:
            held_out[task.id] = task
    return tuple(held_out.values())


def demonstrable_pool(pool: Pool, demonstrators: Collection[tuple[str, str]]) -> Pool:
    """The families of a pool that have a demonstrator; `demonstrators` are pairs (environment, family)."""
    demonstrable = {}
    for family, tasks in pool.items():
        environment, _, name = family.partition("/")
        if (environment, name) in demonstrators:
            demonstrable[family] = tasks
    return demonstrable


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


def merge_pools(*pools: Pool) -> Pool:
    """All tasks of several pools."""
    pool: Pool = {}
    for merged in pools:
        for family, tasks in merged.items():
            pool[family] = {**pool.get(family, {}), **tasks}
    return pool


COVER_EVERY = 4
"""Every `COVER_EVERY`-th group goes to the family with the fewest groups."""
FLOOR = 0.1
"""Preference for a family or task whose episodes all have the same outcome; 1 is that of a success rate of one half."""
PRIOR_EPISODES = 4.0
"""Weight, in episodes, of the family's success rate in the estimate of one task's rate."""


def preference(success_rate: float) -> float:
    """Value of a group at this success rate: the variance of its outcomes, scaled to at most 1."""
    return FLOOR + (1 - FLOOR) * 4 * success_rate * (1 - success_rate)


def drawn_from(
    state: CurriculumState, *, pool: Pool, revisit_share: float, run_seed: int
) -> tuple[Pool, bool]:
    """Return the pool that the next online group's task is drawn from, and whether it revisits earlier phases.

    A phase has the tasks generated for it, and the configured tasks (`pool`, admitted) of environments without generated
    ones. A share of its groups goes to all other tasks. A phase without generated tasks draws from everything. Families that
    the settings no longer name are never drawn from, generated tasks included.
    """
    phases = state.phases
    admitted = [
        task for name, task in phases.generated.items() if name in state.admitted and family_of(task) in pool
    ]
    of_phase = generated_pool(task for task in admitted if phases.phase_of[task.id] == state.phase)
    if not of_phase:
        return merge_pools(pool, generated_pool(admitted)), False
    earlier = generated_pool(task for task in admitted if phases.phase_of[task.id] != state.phase)
    varied = {family.partition("/")[0] for family in of_phase}
    unvaried = {family: tasks for family, tasks in pool.items() if family.partition("/")[0] not in varied}
    of_earlier = merge_pools(
        {family: tasks for family, tasks in pool.items() if family not in unvaried}, earlier
    )
    if (
        any(of_earlier.values())
        and _draw(
            [revisit_share, 1 - revisit_share], run_seed, "curriculum", state.opened["online"], "revisit"
        )
        == 0
    ):
        return of_earlier, True
    return merge_pools(of_phase, unvaried), False


def choose_task(
    state: CurriculumState, *, pool: Pool, sampling: Literal["learnable", "uniform"], run_seed: int
) -> Task:
    """Choose the task of the next online group (`curriculum.sampling`). `pool` has at least one family with a task."""
    number = state.opened["online"]
    if sampling == "uniform":
        names = [name for name, tasks in pool.items() if tasks]
        family_tasks = pool[names[_draw([1.0] * len(names), run_seed, "curriculum", number, "family")]]
        groups = {key: state.tasks[key].groups if key in state.tasks else 0 for key in family_tasks}
        least_played = [key for key, count in groups.items() if count == min(groups.values())]
        return family_tasks[
            least_played[_draw([1.0] * len(least_played), run_seed, "curriculum", number, "task")]
        ]
    family = _choose_family(state, [name for name, tasks in pool.items() if tasks], number, run_seed)
    rate = _family_rate(state, family)
    attempted = {group.task.id for group in state.groups.values() if group.origin == ONLINE}
    tasks = pool[family]
    free = [key for key in tasks if key not in attempted] or list(tasks)
    index = _draw(
        [preference(_task_rate(state, key, rate)) for key in free], run_seed, "curriculum", number, "task"
    )
    return tasks[free[index]]


def choose_demonstration(*, pool: Pool, number: int, run_seed: int) -> Task:
    """Choose the task of the `number`-th demonstration: families in turn, each through its tasks in a seeded order."""
    families = [name for name, tasks in pool.items() if tasks]
    family = families[number % len(families)]
    order = sorted(pool[family], key=lambda key: derive_seed(run_seed, "demonstration", key))
    return pool[family][order[number // len(families) % len(order)]]


def is_hasty(settings: CurriculumSettings, *, number: int, run_seed: int) -> bool:
    """Whether the demonstrator of the `number`-th demonstration is in haste (`curriculum.hasty_share`)."""
    share = settings.hasty_share
    return share > 0 and _draw([share, 1 - share], run_seed, "haste", number) == 0


def demonstrated_pool(demonstrable: Pool, *, count: int, run_seed: int) -> Pool:
    """The tasks of a run's first `count` demonstrations, for learning from pairs.

    The demonstrations of the remaining pool are those of the whole pool: `choose_demonstration` keeps its order.
    """
    demonstrated = {
        choose_demonstration(pool=demonstrable, number=number, run_seed=run_seed).id
        for number in range(count)
    }
    return {
        family: {key: task for key, task in tasks.items() if key in demonstrated}
        for family, tasks in demonstrable.items()
    }


def _choose_family(state: CurriculumState, families: list[str], number: int, run_seed: int) -> str:
    groups_by_family = {
        name: state.families[name].groups if name in state.families else 0 for name in families
    }
    fewest = min(groups_by_family.values())
    if fewest == 0 or number % COVER_EVERY == 0:
        least_tried = [name for name in families if groups_by_family[name] == fewest]
        return least_tried[_draw([1.0] * len(least_tried), run_seed, "curriculum", number, "family")]
    preferences = [preference(_family_rate(state, name)) for name in families]
    return families[_draw(preferences, run_seed, "curriculum", number, "family")]


def _family_rate(state: CurriculumState, family: str) -> float:
    recent = state.families[family].recent if family in state.families else []
    return (sum(recent) + 1) / (len(recent) + 2)


def _task_rate(state: CurriculumState, task_id: str, family_rate: float) -> float:
    tally = state.tasks.get(task_id)
    if tally is None:
        return family_rate
    return (tally.reward + PRIOR_EPISODES * family_rate) / (tally.decided + PRIOR_EPISODES)


def _draw(weights: Sequence[float], run_seed: int, *names: str | int) -> int:
    """Draw an index in proportion to its weight."""
    point = derive_seed(run_seed, *names) / 2**63 * sum(weights)
    for index, weight in enumerate(weights):
        point -= weight
        if point < 0:
            return index
    return len(weights) - 1
