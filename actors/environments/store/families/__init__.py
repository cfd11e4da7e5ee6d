"""The task families of the store, one struct each: how goals are drawn, phrased, checked, demonstrated and recognized."""

from hindcast.actors.environments.store.families.account import CANCEL_ORDER, CHANGE_ADDRESS, ORDER_STATUS
from hindcast.actors.environments.store.families.base import (
    CheckResult,
    Goal,
    ReachedGoal,
    StoreFamily,
    VisitEnd,
)
from hindcast.actors.environments.store.families.cart_edits import CHANGE_QUANTITY, REMOVE_FROM_CART
from hindcast.actors.environments.store.families.comparisons import COMPARE, FIND_PRODUCT
from hindcast.actors.environments.store.families.impossible import IMPOSSIBLE
from hindcast.actors.environments.store.families.product_questions import (
    FIND_FEATURE,
    FIND_PRICE,
    FIND_RATING,
)
from hindcast.actors.environments.store.families.purchases import ADD_SEVERAL, ADD_TO_CART, BUY
from hindcast.actors.environments.store.families.wish_list_and_reviews import WISH_LIST, WRITE_REVIEW

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

__all__ = ["FAMILIES", "CheckResult", "Goal", "ReachedGoal", "StoreFamily", "VisitEnd"]
