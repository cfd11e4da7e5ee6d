"""Interface of the model that values first states; `actors.engines.value_models` implements it."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from hindcast.core.domain.observation import Page
from hindcast.core.domain.task import Task
from hindcast.events.catalogue import WeightsPublished


class FirstState(msgspec.Struct, frozen=True):
    """The state that an episode of a task begins with."""

    task: Task
    page: Page


class Valuer(Protocol):
    """Values first states."""

    def values(self, states: Sequence[FirstState], published: WeightsPublished) -> list[float]:
        """V of each state under these weights, in [0, 1]. Blocks; equal states get equal values."""
        ...
