"""The record of a visit for its evaluator: what was bought, and the nouns of both titles. A reward needs no more."""

import msgspec

from hindcast.actors.environments.webshop.goals import WebshopGoal
from hindcast.actors.environments.webshop.locations import WebshopLocation
from hindcast.actors.environments.webshop.nouns import Nouns, nouns_of
from hindcast.actors.environments.webshop.products import WebshopProduct
from hindcast.actors.environments.webshop.reward import Bought
from hindcast.actors.environments.webshop.shop import WebshopShop


class PurchaseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`Evidence.probes` of a visit."""

    shop: str
    """Digest of the products; empty where the shop is another server's."""
    bought: Bought | None = None
    nouns: Nouns | None = None
    """Computed when the visit ended, so that a later judge needs no spaCy and gets the same."""
    score: float | None = None
    """The score on another server's last page."""


def record_at(shop: WebshopShop, place: WebshopLocation | None, goal: WebshopGoal) -> PurchaseRecord:
    """The record of a visit that ended at a place; a purchase is only a "done" page of this goal."""
    product = shop.get(place.asin) if place is not None else None
    if place is None or place.kind != "done" or place.goal != goal.digest:
        return PurchaseRecord(shop=shop.digest)
    if product is None or not product.offers(place.options):
        return PurchaseRecord(shop=shop.digest)
    return PurchaseRecord(
        shop=shop.digest,
        bought=_bought(product, place.options),
        nouns=nouns_of(bought=product.title, wanted=goal.title),
    )


def _bought(product: WebshopProduct, chosen: dict[str, str]) -> Bought:
    return Bought(
        asin=product.asin,
        title=product.title,
        description=product.description,
        bullets=product.bullets,
        attributes=product.attributes,
        query=product.query,
        product_category=product.product_category,
        price=product.price,
        chosen=chosen,
    )
