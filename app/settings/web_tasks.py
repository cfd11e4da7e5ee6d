"""The user's own tasks in the settings: read once from their file, with their requirements on other settings.

`web.file` names a task file; whatever source of settings names one brings the tasks that stand in it then. From there on
the settings hold the tasks themselves, so that a run, its resumes and its forks need the file no more.
"""

from pathlib import Path
from typing import Any

from hindcast.actors.environments.web.definition import WebTask, plain, secrets_named, tasks_of
from hindcast.actors.environments.web.files import read_tasks
from hindcast.actors.environments.web.secrets import require_secrets
from hindcast.actors.environments.web.tasks import ENVIRONMENT
from hindcast.core.errors import SettingsError
from hindcast.core.rl.algorithm import traits_of
from hindcast.core.settings.schema import Settings

FILE = "web.file"
TASKS = "web.tasks"
CONTEXTS = "actors.contexts"


def overrides_for(file: Path | None) -> list[str]:
    """The settings that `--tasks FILE` and `--suite FILE` stand for."""
    return [] if file is None else [f"{FILE}={file.absolute()}", f"curriculum.environments={ENVIRONMENT}"]


def with_tasks(values: dict[str, Any]) -> dict[str, Any]:
    """The values of one source, and the tasks of the file they name. Raises SettingsError when the file does not hold."""
    file = values.get(FILE)
    if not isinstance(file, str) or TASKS in values:
        return values
    return values | {TASKS: read_tasks(Path(file)) if file else ()}


def narrow_contexts(values: dict[str, Any], sources: dict[str, str]) -> None:
    """Tasks whose reset wipes the whole site are played one at a time, unless the user has chosen otherwise by hand."""
    by_hand = sources[CONTEXTS] != "default" and not sources[CONTEXTS].startswith("recipe")
    given = values.get(TASKS)
    if by_hand or not isinstance(given, list | tuple) or not all(isinstance(one, dict) for one in given):
        return
    try:
        alone = [task.name for task in tasks_of(tuple(given)) if task.exclusive]
    except SettingsError:  # `conflicts` says it
        return
    if alone:
        values[CONTEXTS] = 1
        sources[CONTEXTS] = f"{FILE}: the reset of {alone[0]} wipes the whole site"


def require_sound_groups(settings: Settings) -> None:
    """Assert that no group would be played on a back end that its members change for each other.

    Raises:
        SettingsError: it would; says why, and the ways out.

    """
    curriculum = settings.curriculum
    if (
        ENVIRONMENT not in curriculum.environments
        or curriculum.group_size == 1
        or not traits_of(settings.learner.algorithm).plays_episodes
    ):
        return
    shared = [task for task in tasks_of(settings.web.tasks) if task.shares]
    if shared:
        raise SettingsError(_refusal(shared, curriculum.group_size))


def with_task(settings: Settings, task: WebTask) -> Settings:
    """The settings with one more task, and the environment of such tasks."""
    others = [one for one in settings.web.tasks if one.get("name") != task.name]
    return settings.model_copy(
        update={
            "web": settings.web.model_copy(update={"tasks": (*others, plain(task))}),
            "curriculum": settings.curriculum.model_copy(update={"environments": (ENVIRONMENT,)}),
        }
    )


def require_actors(settings: Settings, actors: int) -> None:
    """Assert that this many actors can play the tasks. Raises SettingsError."""
    if actors == 1 or ENVIRONMENT not in settings.curriculum.environments:
        return
    alone = [task.name for task in tasks_of(settings.web.tasks) if task.exclusive]
    if alone:
        raise SettingsError(
            f"--actors {actors} plays several episodes at once, and the reset of {alone[0]} would wipe the others' state: leave "
            "it at 1, or say parallel = true in the task file if the reset concerns an episode alone"
        )
    batches = [task.name for task in tasks_of(settings.web.tasks) if task.resets == "per_batch"]
    if batches:
        raise SettingsError(
            f"--actors {actors}: each resets the site of {batches[0]} before its first episode (resets = 'per_batch'), and would "
            "wipe what the others have begun: leave it at 1"
        )


def _refusal(shared: list[WebTask], group_size: int) -> str:
    named = ", ".join(task.name for task in shared[:3]) + (", …" if len(shared) > 3 else "")
    return (
        f"curriculum.group_size = {group_size} compares episodes that must begin alike, and with resets = {shared[0].resets!r} "
        f"every episode of {named} begins where others left the site: what one of them did would count for or against the "
        "next. Ways out: a reset with resets = 'per_episode'; parallel = true, where episodes only read or keep to what is "
        "their own; or an algorithm that compares nothing, with --set curriculum.group_size=1"
    )


def require_task_secrets(settings: Settings) -> None:
    """Assert that every secret that the tasks name is in the environment. Raises SettingsError."""
    require_secrets({name for task in tasks_of(settings.web.tasks) for name in secrets_named(task)})
