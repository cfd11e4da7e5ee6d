"""BrowserGym as a plugin."""

from hindcast.actors.environments.base import Answers, TaskSource, Venue
from hindcast.actors.environments.plugin import Environment, SitePlaces
from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.domain.task import Task
from hindcast.core.settings.schema import Settings


class BrowserGym(Environment):
    """See `Environment`."""

    needs = "a Python that has its tasks: set sites.browsergym_python and sites.browsergym_tasks (docs/browsergym.md)"

    def tasks(self, name: str, settings: Settings) -> TaskSource | None:
        """The gym ids of the settings."""
        from hindcast.actors.environments.browsergym.tasks import BrowsergymTasks

        return BrowsergymTasks(settings.sites) if settings.sites.browsergym_python else None

    def open_site(self, name: str, settings: Settings, places: SitePlaces) -> Venue | None:
        """BrowserGym in a Python and a browser of its own."""
        from hindcast.actors.environments.browsergym.world import Browsergym

        return Browsergym(settings) if settings.sites.browsergym_python else None

    def evaluate(self, task: Task, evidence: Evidence, answers: Answers) -> Judgment:
        """The verdict by BrowserGym's reward."""
        from hindcast.actors.environments.browsergym.tasks import evaluate

        return evaluate(task, evidence)

    def check(self, settings: Settings) -> list[str]:
        """Whether the settings name its Python."""
        if "browsergym" in settings.curriculum.environments and not settings.sites.browsergym_python:
            return ["curriculum.environments names browsergym: set sites.browsergym_python"]
        return []


ENVIRONMENT = BrowserGym()
