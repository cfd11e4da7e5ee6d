"""The tasks of a user's file: pure, no server and no browser needed."""

from hindcast.actors.environments.base import ResetSemantics, TaskSource
from hindcast.actors.environments.web.definition import WebTask, tasks_of, to_plain_values
from hindcast.core.domain.task import Task
from hindcast.core.errors import SettingsError
from hindcast.core.settings.schema import WebSettings
from hindcast.core.structs import convert

ENVIRONMENT = "web"
_BESIDE = ("instruction", "family", "max_steps")
"""Keys of a definition that a task holds as fields of its own."""
_STRENGTH: dict[ResetSemantics, int] = {"per_episode": 2, "per_batch": 1, "none": 0}


class WebTasks(TaskSource):
    """`TaskSource` of the tasks in the settings. Tasks of a family are numbered in the order of the file."""

    name = ENVIRONMENT

    def __init__(self, settings: WebSettings) -> None:
        """Raises SettingsError when a definition is invalid."""
        self._families: dict[str, list[WebTask]] = {}
        for task in tasks_of(settings.tasks):
            self._families.setdefault(task.family, []).append(task)

    @property
    def resets(self) -> ResetSemantics:
        """The weakest reset that any task declares."""
        declared = [task.resets for tasks in self._families.values() for task in tasks]
        return min(declared, key=_STRENGTH.__getitem__, default="none")

    def families(self) -> tuple[str, ...]:
        """Families in the order of the file."""
        return tuple(self._families)

    def task(self, family: str, seed: int) -> Task:
        """The task of this number in its family, from 0, starting over after the last.

        Raises SettingsError for an unknown family.
        """
        tasks = self._families.get(family)
        if tasks is None:
            families = ", ".join(self._families)
            raise SettingsError(f"the task file has no family {family!r}; it has: {families}")
        number = seed % len(tasks)
        return as_task(tasks[number], number)


def as_task(definition: WebTask, number: int) -> Task:
    """A definition as a task; the goal holds what evaluators, sites and forks need."""
    return Task(
        environment=ENVIRONMENT,
        family=definition.family,
        seed=number,
        instruction=definition.instruction,
        goal={key: value for key, value in to_plain_values(definition).items() if key not in _BESIDE},
        max_steps=definition.max_steps,
    )


def definition_of(task: Task) -> WebTask:
    """The definition of a task. Raises msgspec.ValidationError where its goal is none."""
    task_fields = {"instruction": task.instruction, "family": task.family, "max_steps": task.max_steps}
    return convert(task.goal | task_fields, WebTask)
