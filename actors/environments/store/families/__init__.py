"""The task families of the store, one struct each: how goals are drawn, said, checked, demonstrated and recognised."""

from actors.environments.store.families.base import Ending, Family, Finding, Goal, Reached
from actors.environments.store.families.buying import ADD_SEVERAL, ADD_TO_CART, BUY
from actors.environments.store.families.looking import FIND_FEATURE, FIND_PRICE, FIND_RATING

FAMILIES: dict[str, Family] = {
    family.name: family for family in (FIND_PRICE, FIND_RATING, FIND_FEATURE, ADD_TO_CART, ADD_SEVERAL, BUY)
}
"""Every family by name, in a stable order."""

__all__ = ["FAMILIES", "Ending", "Family", "Finding", "Goal", "Reached"]
