"""BrowserGym's tasks: a family is a gym id, the seed is that of its reset, and the verdict is the task's own reward."""

from hindcast.actors.environments.base import TaskSource, decided, undecided
from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.domain.task import Task
from hindcast.core.errors import SettingsError
from hindcast.core.settings.schema import SiteSettings

ENVIRONMENT = "browsergym"
PREFIX = "browsergym/"
"""Prefix of every gym id of BrowserGym; family names omit it."""


class BrowsergymTasks(TaskSource):
    """The `TaskSource` of the ids in the settings; whether they are installed shows at the reset."""

    name = ENVIRONMENT

    def __init__(self, settings: SiteSettings) -> None:
        """Raises SettingsError where an id does not begin with `browsergym/`, or there is none."""
        wrong = [
            task_id
            for task_id in settings.browsergym_tasks
            if not task_id.startswith(PREFIX) or task_id == PREFIX
        ]
        if wrong or not settings.browsergym_tasks:
            raise SettingsError(
                f"sites.browsergym_tasks is {list(settings.browsergym_tasks)}: name gym ids such as "
                f"'{PREFIX}miniwob.click-test'"
            )
        self._ids = {task_id.removeprefix(PREFIX): task_id for task_id in settings.browsergym_tasks}
        self._max_steps = settings.browsergym_max_steps

    def families(self) -> tuple[str, ...]:
        """Families in the order of the settings."""
        return tuple(self._ids)

    def task(self, family: str, seed: int) -> Task:
        """The task of an id and a seed; the page gives the instruction. Raises SettingsError for an id that is not named."""
        if family not in self._ids:
            raise SettingsError(f"{family!r} is not among sites.browsergym_tasks: {', '.join(self._ids)}")
        return Task(
            environment=ENVIRONMENT,
            family=family,
            seed=seed,
            instruction="",
            goal={"id": self._ids[family]},
            max_steps=self._max_steps,
        )


def evaluate(task: Task, evidence: Evidence) -> Judgment:
    """Judge by the task's own reward. Undecided only when the evidence holds none."""
    reward = evidence.probes.get("reward")
    if not isinstance(reward, int | float):
        return undecided(f"{task.family}: the evidence holds no reward")
    reason = f"{task.family}: BrowserGym's reward is {reward:g}"
    if reward > 0:
        return Judgment(outcome="success", reward=min(1.0, float(reward)), reason=reason)
    if not evidence.probes.get("ended"):
        reason = f"{task.family}: the task was not brought to an end"
    return decided(False, reason)
