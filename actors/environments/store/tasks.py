"""The store's tasks: pure, no server and no browser needed."""

from collections.abc import Collection
from random import Random

from hindcast.actors.environments.base import ResetSemantics, Variant
from hindcast.actors.environments.store.catalogue import Catalogue, catalogue_of
from hindcast.actors.environments.store.families import FAMILIES, Goal
from hindcast.actors.environments.store.goals.reachability import why_unreachable
from hindcast.actors.environments.store.goals.variations import vary
from hindcast.actors.environments.store.initial_state import opening_state
from hindcast.core.domain.task import Task
from hindcast.core.errors import SettingsError
from hindcast.core.seeds import derive_seed
from hindcast.core.settings.schema import SiteSettings

ENVIRONMENT = "store"


class StoreTasks:
    """`TaskSource` of the store."""

    def __init__(self, settings: SiteSettings) -> None:
        self._settings = settings

    @property
    def name(self) -> str:
        """Name of the environment: `store`."""
        return ENVIRONMENT

    @property
    def resets(self) -> ResetSemantics:
        """Every episode has its own session."""
        return "per_episode"

    @property
    def catalogue(self) -> Catalogue:
        """The catalogue that the tasks refer to; built on first use."""
        return catalogue_of(self._settings)

    def families(self) -> tuple[str, ...]:
        """Names of the families, in a stable order."""
        return tuple(FAMILIES)

    def usual(self) -> tuple[str, ...]:
        """All families."""
        return self.families()

    def task(self, family: str, seed: int) -> Task:
        """The task of a family and seed. Raises SettingsError for an unknown family."""
        known = FAMILIES.get(family)
        if known is None:
            raise SettingsError(f"the store has no task family {family!r}; it has: {', '.join(FAMILIES)}")
        random = Random(derive_seed(seed, ENVIRONMENT, family, "goal"))
        goal = known.draw(self.catalogue, opening_state(self.catalogue, family, seed), random)
        return self._asking(family, seed, goal, random)

    def vary(self, task: Task, *, families: Collection[str], random: Random) -> Variant | None:
        """See `GoalSpace`."""
        found = vary(self.catalogue, task, families=families, random=random)
        if found is None:
            return None
        return Variant(self._asking(found.family, task.seed, found.goal, random), found.change)

    def why_unreachable(self, task: Task) -> str:
        """See `GoalSpace`."""
        return why_unreachable(self.catalogue, task)

    def _asking(self, family: str, seed: int, goal: Goal, random: Random) -> Task:
        known = FAMILIES[family]
        return Task(
            environment=ENVIRONMENT,
            family=family,
            seed=seed,
            instruction=known.say(goal, random),
            goal={**goal, "catalogue": self.catalogue.name},
            max_steps=known.max_steps,
        )
