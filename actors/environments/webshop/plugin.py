"""WebShop as a plugin."""

from collections.abc import Mapping, Sequence

from hindcast.actors.environments.base import Answers, Demonstrate, TaskSource, Venue
from hindcast.actors.environments.plugin import Environment, SitePlaces
from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.domain.task import Task
from hindcast.core.settings.schema import Settings


class Webshop(Environment):
    """See `Environment`."""

    imports_goals = True
    needs = (
        "its data or a running server: set sites.webshop_items and sites.webshop_instructions, or sites.webshop_url "
        "(docs/webshop.md)"
    )

    def tasks(self, name: str, settings: Settings) -> TaskSource | None:
        """Goals of the data or of the server that the settings name."""
        from hindcast.actors.environments.webshop.tasks import webshop_tasks

        return webshop_tasks(settings.sites)

    def open_site(self, name: str, settings: Settings, places: SitePlaces) -> Venue | None:
        """Our own pages, the same as text, or a running server of the original."""
        from hindcast.actors.environments.webshop.site import webshop_site

        return webshop_site(settings.sites, places.store_url)

    def evaluate(self, task: Task, evidence: Evidence, answers: Answers) -> Judgment:
        """The verdict by WebShop's reward."""
        from hindcast.actors.environments.webshop.evaluators import evaluate

        return evaluate(task, evidence)

    def demonstrators(self) -> Mapping[str, Demonstrate]:
        """One shopper for every family."""
        from hindcast.actors.environments.webshop.demonstrators import DEMONSTRATORS

        return DEMONSTRATORS

    def evaluation_families(self, source: TaskSource) -> Sequence[str]:
        """The test part, by people if there are such goals."""
        return [family for family in source.families() if family.endswith("test")][:1]

    def check(self, settings: Settings) -> list[str]:
        """What is wrong with where WebShop's tasks come from."""
        sites, conflicts = settings.sites, []
        if sites.webshop_items and sites.webshop_url:
            conflicts.append(
                "sites.webshop_items and sites.webshop_url are both set: tasks come from data files or from a running server. "
                "Empty one of them"
            )
        if bool(sites.webshop_items) != bool(sites.webshop_instructions):
            conflicts.append(
                "sites.webshop_items and sites.webshop_instructions need each other: products, and their attributes in "
                "items_ins_v2_….json"
            )
        if sites.webshop_human and not sites.webshop_items:
            conflicts.append("sites.webshop_human needs the products that it speaks of: sites.webshop_items")
        if "webshop" in settings.curriculum.environments and not (sites.webshop_items or sites.webshop_url):
            conflicts.append(
                "curriculum.environments names webshop: set sites.webshop_items and sites.webshop_instructions, or "
                "sites.webshop_url (docs/webshop.md)"
            )
        return conflicts


ENVIRONMENT = Webshop()
