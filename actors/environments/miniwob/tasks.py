"""Tasks of MiniWoB++: a family and a seed; the page gives the instruction."""

from hindcast.actors.environments.base import ResetSemantics
from hindcast.actors.environments.miniwob.families import FAMILIES, USUAL
from hindcast.actors.environments.miniwob.unplayable import why_not
from hindcast.core.domain.task import Task
from hindcast.core.errors import SettingsError


class MiniwobTasks:
    """The `TaskSource` of MiniWoB++; needs no browser."""

    name = "miniwob"
    resets: ResetSemantics = "per_episode"

    def families(self) -> tuple[str, ...]:
        """Family names in the order of the table."""
        return tuple(FAMILIES)

    def usual(self) -> tuple[str, ...]:
        """Families that the base policy was trained on."""
        return USUAL

    def task(self, family: str, seed: int) -> Task:
        """The task of a family and seed. Raises SettingsError for an unknown family, with the reason."""
        if family not in FAMILIES:
            raise SettingsError(why_not(family))
        return Task(
            environment="miniwob",
            family=family,
            seed=seed,
            instruction="",
            goal={},
            max_steps=FAMILIES[family].max_steps,
        )
