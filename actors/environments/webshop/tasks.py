"""WebShop's tasks: one goal each, from the data files, or by number from a running server."""

import msgspec

from hindcast.actors.environments.base import TaskSource
from hindcast.actors.environments.webshop.goals import SPLITS, Split, bounds_of
from hindcast.actors.environments.webshop.shop import WebshopShop, shop_of
from hindcast.core.domain.task import Task
from hindcast.core.errors import SettingsError
from hindcast.core.settings.schema import SiteSettings

ENVIRONMENT = "webshop"
MAX_STEPS = 15
"""Step limit of ReAct's and LASER's experiments; upstream itself has none."""


def webshop_tasks(settings: SiteSettings) -> TaskSource | None:
    """The tasks of the data or of the server that the settings name; None where they name neither."""
    if settings.webshop_items:
        return WebshopTasks(settings)
    return ServerTasks(settings) if settings.webshop_url else None


class WebshopTasks(TaskSource):
    """`TaskSource` of the data files: a family per kind of goal and part of the set."""

    name = ENVIRONMENT

    def __init__(self, settings: SiteSettings) -> None:
        self._settings = settings

    @property
    def shop(self) -> WebshopShop:
        """The shop that the tasks refer to; loaded on first use."""
        return shop_of(self._settings)

    def families(self) -> tuple[str, ...]:
        """Families that the data have goals for."""
        return tuple(self.shop.families)

    def usual(self) -> tuple[str, ...]:
        """Goals to train on, those by people if there are any: `train`, else `synthetic_train`."""
        names = [name for name in self.families() if name.endswith("train")]
        return tuple(names[:1]) or self.families()

    def task(self, family: str, seed: int) -> Task:
        """The goal whose number in the family is the seed modulo the number of goals.

        Raises SettingsError for a family that the data do not have.
        """
        goals = self.shop.families.get(family)
        if goals is None:
            raise SettingsError(
                f"WebShop's data have no task family {family!r}; there are: {', '.join(self.families()) or 'none'}. "
                "Goals by people need sites.webshop_human"
            )
        goal = goals[seed % len(goals)]
        return Task(
            environment=ENVIRONMENT,
            family=family,
            seed=seed,
            instruction=goal.instruction,
            goal={"wanted": msgspec.to_builtins(goal), "shop": self.shop.digest},
            max_steps=MAX_STEPS,
        )


class ServerTasks(TaskSource):
    """`TaskSource` of a running server: goals by their number there; only its pages show what they ask for."""

    name = ENVIRONMENT

    def __init__(self, settings: SiteSettings) -> None:
        self._bounds = bounds_of(settings.webshop_url_goals)

    def families(self) -> tuple[str, ...]:
        """Test, dev and train."""
        return tuple(SPLITS)

    def usual(self) -> tuple[str, ...]:
        """Goals to train on."""
        return ("train",)

    def task(self, family: str, seed: int) -> Task:
        """The session that upstream's server gives a fixed goal. Raises SettingsError for an unknown family."""
        split: Split | None = next((name for name in SPLITS if name == family), None)
        if split is None:
            raise SettingsError(
                f"a WebShop server has no task family {family!r}; it has: {', '.join(SPLITS)}"
            )
        first, end = self._bounds[split]
        return Task(
            environment=ENVIRONMENT,
            family=family,
            seed=seed,
            instruction="",
            goal={"session": f"fixed_{first + seed % (end - first)}"},
            max_steps=MAX_STEPS,
        )
