"""MiniWoB++ as a plugin."""

from collections.abc import Collection, Mapping

from hindcast.actors.environments.base import Answers, Demonstrate, TaskSource, Venue
from hindcast.actors.environments.miniwob.families import FAMILIES
from hindcast.actors.environments.plugin import Environment, SitePlaces
from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.domain.task import Task
from hindcast.core.settings.schema import Settings

FULL_REWARD = 1.0


class Miniwob(Environment):
    """See `Environment`."""

    imports_goals = True

    def tasks(self, name: str, settings: Settings) -> TaskSource:
        """Families and seeds of the package's pages."""
        from hindcast.actors.environments.miniwob.tasks import MiniwobTasks

        return MiniwobTasks()

    def open_site(self, name: str, settings: Settings, places: SitePlaces) -> Venue:
        """The package's pages on disk."""
        from hindcast.actors.environments.miniwob.site import MiniwobSite

        return MiniwobSite()

    def evaluate(self, task: Task, evidence: Evidence, answers: Answers) -> Judgment:
        """The verdict by the page's reward."""
        from hindcast.actors.environments.miniwob.tasks import evaluate

        return evaluate(task, evidence)

    def objection(self, task: Task, evidence: Evidence, judgment: Judgment) -> str:
        """Partial credit."""
        if judgment.reward < FULL_REWARD:
            return f"the page gave only {judgment.reward:g} of {FULL_REWARD:g}"
        return ""

    def demonstrators(self) -> Mapping[str, Demonstrate]:
        """The scripted solutions."""
        from hindcast.actors.environments.miniwob.demonstrators import DEMONSTRATORS

        return DEMONSTRATORS

    def families(self, settings: Settings) -> Collection[str]:
        """Every family that can be played."""
        return FAMILIES

    def why_no_family(self, family: str) -> str:
        """Why a page of the package is no family."""
        from hindcast.actors.environments.miniwob.families import why_not

        return why_not(family)

    def depends_on_time(self, task: Task) -> bool:
        """Whether the page shows a clock; see docs/miniwob.md."""
        return task.family in FAMILIES and FAMILIES[task.family].clock


ENVIRONMENT = Miniwob()
