"""BrowserGym's tasks as a `TaskSource`: a family is a gym id, the seed is that of its reset."""

from hindcast.actors.environments.base import ResetSemantics
from hindcast.core.domain.task import Task
from hindcast.core.errors import SettingsError
from hindcast.core.settings.schema import SiteSettings

ENVIRONMENT = "browsergym"
PREFIX = "browsergym/"
"""Prefix of every gym id of BrowserGym; family names omit it."""


class BrowsergymTasks:
    """The `TaskSource` of the ids in the settings; whether they are installed shows at the reset."""

    name = ENVIRONMENT
    resets: ResetSemantics = "per_episode"

    def __init__(self, settings: SiteSettings) -> None:
        """Raises SettingsError where an id does not begin with `browsergym/`, or there is none."""
        wrong = [one for one in settings.browsergym_tasks if not one.startswith(PREFIX) or one == PREFIX]
        if wrong or not settings.browsergym_tasks:
            raise SettingsError(
                f"sites.browsergym_tasks is {list(settings.browsergym_tasks)}: name gym ids such as "
                f"'{PREFIX}miniwob.click-test'"
            )
        self._ids = {one.removeprefix(PREFIX): one for one in settings.browsergym_tasks}
        self._max_steps = settings.browsergym_max_steps

    def families(self) -> tuple[str, ...]:
        """Families in the order of the settings."""
        return tuple(self._ids)

    def usual(self) -> tuple[str, ...]:
        """All families."""
        return self.families()

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
