"""The embedded store as a plugin."""

from collections.abc import Collection, Mapping

from hindcast.actors.environments.base import Answers, Demonstrate, TaskSource, Venue
from hindcast.actors.environments.plugin import Environment, SitePlaces
from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.domain.task import Task
from hindcast.core.settings.schema import Settings


class Store(Environment):
    """See `Environment`."""

    imports_goals = True
    takes_agents = True

    def tasks(self, name: str, settings: Settings) -> TaskSource:
        """Tasks of the catalogue that the settings describe."""
        from hindcast.actors.environments.store.tasks import StoreTasks

        return StoreTasks(settings.sites)

    def open_site(self, name: str, settings: Settings, places: SitePlaces) -> Venue:
        """The store's own server."""
        from hindcast.actors.environments.store.site import StoreSite

        return StoreSite(places.store_url, places.store_token)

    def evaluate(self, task: Task, evidence: Evidence, answers: Answers) -> Judgment:
        """The verdict by the store's record."""
        from hindcast.actors.environments.store.evaluators import evaluate

        return evaluate(task, evidence)

    def objection(self, task: Task, evidence: Evidence, judgment: Judgment) -> str:
        """Side effects, pages after the goal, or steps that ran out."""
        from hindcast.actors.environments.store.evaluators import objection

        return objection(task, evidence)

    def demonstrators(self) -> Mapping[str, Demonstrate]:
        """One for every family."""
        from hindcast.actors.environments.store.families import DEMONSTRATORS

        return DEMONSTRATORS

    def families(self, settings: Settings) -> Collection[str]:
        """Every family."""
        from hindcast.actors.environments.store.families import FAMILIES

        return FAMILIES


ENVIRONMENT = Store()
