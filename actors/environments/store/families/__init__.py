"""The task families of the store, one struct each: how goals are drawn, phrased, checked, demonstrated and recognized."""

from collections.abc import Sequence

from hindcast.actors.environments.base import Demonstrate
from hindcast.actors.environments.store.families.account import (
    CANCEL_ORDER,
    CHANGE_ADDRESS,
    ORDER_STATUS,
    WISH_LIST,
    WRITE_REVIEW,
)
from hindcast.actors.environments.store.families.base import (
    CheckResult,
    Goal,
    PageView,
    ReachedGoal,
    StoreFamily,
    VisitEnd,
)
from hindcast.actors.environments.store.families.cart import (
    ADD_SEVERAL,
    ADD_TO_CART,
    BUY,
    CHANGE_QUANTITY,
    REMOVE_FROM_CART,
)
from hindcast.actors.environments.store.families.impossible import IMPOSSIBLE
from hindcast.actors.environments.store.families.questions import (
    COMPARE,
    FIND_FEATURE,
    FIND_PRICE,
    FIND_PRODUCT,
    FIND_RATING,
)
from hindcast.core.domain.action import Action
from hindcast.core.domain.observation import Observation
from hindcast.core.domain.task import Task

FAMILIES: dict[str, StoreFamily] = {
    family.name: family
    for family in (
        FIND_PRICE,
        FIND_RATING,
        FIND_FEATURE,
        FIND_PRODUCT,
        COMPARE,
        ADD_TO_CART,
        ADD_SEVERAL,
        BUY,
        REMOVE_FROM_CART,
        CHANGE_QUANTITY,
        WISH_LIST,
        WRITE_REVIEW,
        ORDER_STATUS,
        CANCEL_ORDER,
        CHANGE_ADDRESS,
        IMPOSSIBLE,
    )
}
"""Every family by name, in a stable order."""


def _demonstrator(family: StoreFamily) -> Demonstrate:
    def demonstrate(
        task: Task, instruction: str, observation: Observation, earlier: Sequence[Action]
    ) -> Action:
        return family.act(task.goal, PageView(observation), earlier)

    return demonstrate


DEMONSTRATORS = {name: _demonstrator(family) for name, family in FAMILIES.items()}
"""Family -> demonstrate(task, instruction, observation, earlier actions) -> next action."""

__all__ = ["DEMONSTRATORS", "FAMILIES", "CheckResult", "Goal", "ReachedGoal", "StoreFamily", "VisitEnd"]
