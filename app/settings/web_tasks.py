"""Reads the user's own tasks into the settings and checks what they require of other settings.

`web.file` names a task file. The file is read once, when the settings are merged; then the settings contain the tasks, so
a run, its resumes and its forks do not need the file.
"""

from pathlib import Path
from typing import Any

from hindcast.actors.environments.web.definition import WebTask, secrets_named, tasks_of, to_plain_values
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
    """Overrides for a task file given as `--tasks FILE` or `--suite FILE`; none without a file."""
    return [] if file is None else [f"{FILE}={file.absolute()}", f"curriculum.environments={ENVIRONMENT}"]


def load_tasks(values: dict[str, Any]) -> dict[str, Any]:
    """Add the tasks of the task file that the values name. Raises SettingsError if the file is invalid."""
    file = values.get(FILE)
    if not isinstance(file, str) or TASKS in values:
        return values
    return values | {TASKS: read_tasks(Path(file)) if file else ()}


def narrow_contexts(values: dict[str, Any], sources: dict[str, str]) -> None:
    """Set `actors.contexts` to 1 if a task's reset clears the whole site, unless the user has set it."""
    by_hand = sources[CONTEXTS] != "default" and not sources[CONTEXTS].startswith("recipe")
    given = values.get(TASKS)
    if by_hand or not isinstance(given, list | tuple) or not all(isinstance(one, dict) for one in given):
        return
    try:
        alone = [task.name for task in tasks_of(tuple(given)) if task.exclusive]
    except SettingsError:  # the environment's check reports it
        return
    if alone:
        values[CONTEXTS] = 1
        sources[CONTEXTS] = f"{FILE}: the reset of {alone[0]} clears the whole site"


def require_sound_groups(settings: Settings) -> None:
    """Require that the episodes of a group do not change the back end for each other.

    Raises:
        SettingsError: they do; the message lists the ways out.

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


def add_task(settings: Settings, task: WebTask) -> Settings:
    """Add a task to the settings, or replace the one of the same name, and choose the environment `web`."""
    others = [one for one in settings.web.tasks if one.get("name") != task.name]
    return settings.model_copy(
        update={
            "web": settings.web.model_copy(update={"tasks": (*others, to_plain_values(task))}),
            "curriculum": settings.curriculum.model_copy(update={"environments": (ENVIRONMENT,)}),
        }
    )


def require_actors(settings: Settings, actors: int) -> None:
    """Require that this many actors can play the tasks. Raises SettingsError."""
    if actors == 1 or ENVIRONMENT not in settings.curriculum.environments:
        return
    alone = [task.name for task in tasks_of(settings.web.tasks) if task.exclusive]
    if alone:
        raise SettingsError(
            f"--actors {actors} plays several episodes at once, and the reset of {alone[0]} would clear the others' state: use 1, "
            "or set parallel = true in the task file if a reset affects only its own episode"
        )
    batches = [task.name for task in tasks_of(settings.web.tasks) if task.resets == "per_batch"]
    if batches:
        raise SettingsError(
            f"--actors {actors}: each actor resets the site of {batches[0]} before its first episode (resets = 'per_batch'), and "
            "would clear the state of running episodes: use 1"
        )


def _refusal(shared: list[WebTask], group_size: int) -> str:
    named = ", ".join(task.name for task in shared[:3]) + (", …" if len(shared) > 3 else "")
    return (
        f"curriculum.group_size = {group_size} compares episodes, which must begin in the same state. With resets = "
        f"{shared[0].resets!r} every episode of {named} begins in the state in which others left the site, so what one did "
        "would change the reward of the next. Ways out: a reset with resets = 'per_episode'; parallel = true, if episodes "
        "only read or change only their own data; or an algorithm that does not compare episodes, with --set "
        "curriculum.group_size=1"
    )


def require_task_secrets(settings: Settings) -> None:
    """Require that every secret that the tasks name is in the environment. Raises SettingsError."""
    require_secrets({name for task in tasks_of(settings.web.tasks) for name in secrets_named(task)})
