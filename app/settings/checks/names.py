"""Checks that environments, task families, tasks, judges and relabelers named in settings exist. Loads no data.

Only new settings are checked: a recorded run may name what a later Hindcast no longer has.
"""

from collections.abc import Iterator

from hindcast.actors.environments.plugin import ENVIRONMENTS, environments_of, find_environment, options_of
from hindcast.actors.judges.plugin import JUDGES, find_judge
from hindcast.actors.relabelers.plugin import RELABELERS, find_relabeler
from hindcast.core.domain.task import FIRST_EVALUATION_SEED
from hindcast.core.errors import PluginError, SettingsError
from hindcast.core.plugins import plugin_names
from hindcast.core.settings.schema import Settings
from hindcast.core.text.nearest import advice

LARGEST_SEED = 2**31 - 1


def name_conflicts(settings: Settings) -> list[str]:
    """Describe every unknown name in one sentence, with the nearest known name or all known names."""
    return [
        *_environment_conflicts(settings),
        *task_conflicts(settings),
        *_judge_conflicts(settings),
        *_relabeler_conflicts(settings),
    ]


def _environment_conflicts(settings: Settings) -> Iterator[str]:
    named, known = settings.curriculum.environments, plugin_names(ENVIRONMENTS)
    if not named:
        yield f"curriculum.environments is empty, so there are no tasks; environments: {', '.join(known)}"
    try:
        environments = environments_of(settings)
    except PluginError as error:
        yield f"curriculum.environments: {error}"
        return
    for name in sorted(settings.sites.options.keys() - environments.keys()):
        yield f"sites.options names {name!r}, which is not an environment of the run; {advice(name, environments)}"
    for name, environment in environments.items():
        try:
            options_of(name, settings)
            yield from environment.check(settings)
        except SettingsError as error:
            yield str(error)


def task_conflicts(settings: Settings) -> Iterator[str]:
    """Describe tasks and families of curriculum and evaluation that are malformed or that no environment has."""
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
        elif settings.evaluation.every and int(seed) in _evaluation_seeds(settings):
            yield (
                f"curriculum.tasks names {task!r}, which is an evaluation's (evaluation.every = {settings.evaluation.every}): "
                f"leave it out, or name one with a seed below {FIRST_EVALUATION_SEED}"
            )
    named_families = {
        "curriculum.families": curriculum.families,
        "evaluation.families": settings.evaluation.families,
    }
    for key, families in named_families.items():
        for family in families:
            environment, slash, name = family.partition("/")
            if not (slash and name and environment in curriculum.environments):
                yield (
                    f"{key} names {family!r}: a family is written environment/name, with an environment of "
                    f"curriculum.environments ({', '.join(curriculum.environments)})"
                )
            elif why := _unknown_family(family, settings):
                yield f"{key} names {family!r}: {why}"


def _evaluation_seeds(settings: Settings) -> range:
    return range(FIRST_EVALUATION_SEED, FIRST_EVALUATION_SEED + settings.evaluation.episodes)


def _unknown_family(family: str, settings: Settings) -> str:
    """Explain that an environment has no such family; empty if it has, or if only its data would show it."""
    environment, _, name = family.partition("/")
    try:
        plugin = find_environment(environment)
    except PluginError:  # `_environment_conflicts` reports it
        return ""
    known = plugin.families(settings)
    if not known or name in known:
        return ""
    return plugin.why_no_family(name) or f"{environment} has no such family; {advice(name, known)}"


def _judge_conflicts(settings: Settings) -> Iterator[str]:
    judges, truth = settings.judge.judges, settings.learner.orm_truth
    known = plugin_names(JUDGES)
    if not judges:
        yield f"judge.judges is empty, so no episode would get a verdict; judges: {', '.join(known)}"
    for key, names in (("judge.judges", judges), ("learner.orm_truth", (truth,))):
        for name in dict.fromkeys(names):
            if ":" not in name and name not in known:
                yield f"{key} names {name!r}, which is not a judge; {advice(name, known)}"
                continue
            try:
                find_judge(name)
            except PluginError as error:
                yield f"{key}: {error}"


def _relabeler_conflicts(settings: Settings) -> Iterator[str]:
    name, known = settings.relabeler.kind, plugin_names(RELABELERS)
    if name and ":" not in name and name not in known:
        yield f"relabeler.kind names {name!r}, which is not a relabeler; {advice(name, known)}"
    elif name:
        try:
            find_relabeler(name)
        except PluginError as error:
            yield f"relabeler.kind: {error}"
