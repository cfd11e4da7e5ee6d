"""The task families of the store, one struct each: how goals are drawn, said, checked, demonstrated and recognised."""

from actors.environments.store.families.account import CANCEL_ORDER, CHANGE_ADDRESS, ORDER_STATUS
from actors.environments.store.families.base import Ending, Family, Finding, Goal, Reached
from actors.environments.store.families.buying import ADD_SEVERAL, ADD_TO_CART, BUY
from actors.environments.store.families.choosing import COMPARE, FIND_PRODUCT
from actors.environments.store.families.impossible import IMPOSSIBLE
from actors.environments.store.families.keeping import WISH_LIST, WRITE_REVIEW
from actors.environments.store.families.looking import FIND_FEATURE, FIND_PRICE, FIND_RATING
from actors.environments.store.families.tidying import CHANGE_QUANTITY, REMOVE_FROM_CART

FAMILIES: dict[str, Family] = {
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

__all__ = ["FAMILIES", "Ending", "Family", "Finding", "Goal", "Reached"]
