"""Names in settings that nothing has: environments, task families, single tasks, judges. Loads no data.

New settings are checked so; those of a recorded run may name what a later Hindcast has no more.
"""

from collections.abc import Callable, Collection, Iterator

from hindcast.actors.environments.browsergym.tasks import ENVIRONMENT as BROWSERGYM
from hindcast.actors.environments.miniwob.families import FAMILIES as MINIWOB_FAMILIES
from hindcast.actors.environments.miniwob.tasks import MiniwobTasks
from hindcast.actors.environments.miniwob.unplayable import why_not
from hindcast.actors.environments.web.tasks import ENVIRONMENT as WEB
from hindcast.actors.environments.webarena.tasks import ENVIRONMENT as WEBARENA
from hindcast.actors.environments.webshop.tasks import ENVIRONMENT as WEBSHOP
from hindcast.actors.judges.plugin import JUDGES, find_judge
from hindcast.core.errors import PluginError
from hindcast.core.plugins import plugin_names
from hindcast.core.settings.schema import Settings
from hindcast.core.text.nearest import advice

STORE = "store"
NEEDS: dict[str, Callable[[Settings], tuple[bool, str]]] = {
    STORE: lambda _: (True, ""),
    MiniwobTasks.name: lambda _: (True, ""),
    WEB: lambda settings: (bool(settings.web.tasks), "a task file: --tasks or web.file"),
    WEBARENA: lambda settings: (bool(settings.sites.webarena_tasks), "sites.webarena_tasks"),
    WEBSHOP: lambda settings: (
        bool(settings.sites.webshop_items or settings.sites.webshop_url),
        "sites.webshop_items and sites.webshop_instructions, or sites.webshop_url",
    ),
    BROWSERGYM: lambda settings: (bool(settings.sites.browsergym_python), "sites.browsergym_python"),
}
"""Every environment, whether the settings have what it takes, and what that is."""
CHECKED_ELSEWHERE = (WEB, WEBSHOP)
"""Environments whose own checks say what they lack."""
LARGEST_SEED = 2**31 - 1


def name_conflicts(settings: Settings) -> list[str]:
    """Every name that nothing has, one sentence each, with the nearest name and those there are."""
    return [
        *_environment_conflicts(settings),
        *task_conflicts(settings),
        *_judge_conflicts(settings),
    ]


def _environment_conflicts(settings: Settings) -> Iterator[str]:
    names = settings.curriculum.environments
    if not names:
        yield f"curriculum.environments is empty: there is nothing to attempt; there are: {', '.join(NEEDS)}"
    for name in dict.fromkeys(names):
        if name not in NEEDS:
            yield f"curriculum.environments names {name!r}, which is none; {advice(name, NEEDS)}"
            continue
        there, needed = NEEDS[name](settings)
        if not there and name not in CHECKED_ELSEWHERE:
            yield f"curriculum.environments names {name}: set {needed}"


def task_conflicts(settings: Settings) -> Iterator[str]:
    """Tasks and families of `curriculum` that are not written as such, or that no environment has."""
    curriculum = settings.curriculum
    for task in curriculum.tasks:
        family, _, seed = task.rpartition(":")
        named = family.partition("/")[0] in curriculum.environments
        if not (
            named and seed.isascii() and seed.isdecimal() and len(seed) < 11 and int(seed) <= LARGEST_SEED
        ):
            yield (
                f"curriculum.tasks names {task!r}: a task is written environment/family:seed, with an environment of "
                f"curriculum.environments ({', '.join(curriculum.environments)}) and a seed up to {LARGEST_SEED}"
            )
        elif why := _unknown_family(family, settings):
            yield f"curriculum.tasks names {task!r}: {why}"
    for family in curriculum.families:
        environment, slash, name = family.partition("/")
        if not (slash and name and environment in curriculum.environments):
            yield (
                f"curriculum.families names {family!r}: a family is written environment/name, with an environment of "
                f"curriculum.environments ({', '.join(curriculum.environments)})"
            )
        elif why := _unknown_family(family, settings):
            yield f"curriculum.families names {family!r}: {why}"


def _unknown_family(family: str, settings: Settings) -> str:
    """Why an environment has no such family, with the nearest; empty where it has one, or only its data could say."""
    environment, _, name = family.partition("/")
    known: Collection[str] = ()
    if environment == STORE:
        # it loads a web server's library
        from hindcast.actors.environments.store.families import FAMILIES as STORE_FAMILIES

        known = STORE_FAMILIES
    elif environment == MiniwobTasks.name:
        known = MINIWOB_FAMILIES
    elif environment == WEB:
        known = {str(task.get("family", "tasks")) for task in settings.web.tasks}
    if not known or name in known:
        return ""
    if environment == MiniwobTasks.name:
        return why_not(name)
    return f"{environment} has no such family; {advice(name, known)}"


def _judge_conflicts(settings: Settings) -> Iterator[str]:
    judges, truth = settings.judge.judges, settings.learner.orm_truth
    known = plugin_names(JUDGES)
    if not judges:
        yield f"judge.judges is empty: nobody would give a verdict; there are: {', '.join(known)}"
    for key, names in (("judge.judges", judges), ("learner.orm_truth", (truth,))):
        for name in dict.fromkeys(names):
            if ":" not in name and name not in known:
                yield f"{key} names {name!r}, which is no judge; {advice(name, known)}"
                continue
            try:
                find_judge(name)
            except PluginError as error:
                yield f"{key}: {error}"
