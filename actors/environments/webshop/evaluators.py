"""The verdict on a visit to WebShop, and the record that it reads: what was bought, and the nouns of both titles.

It reads evidence and the task alone, so that judging again is a replay.
"""

import msgspec

from hindcast.actors.environments.base import decided, undecided
from hindcast.actors.environments.webshop.goals import WebshopGoal
from hindcast.actors.environments.webshop.products import WebshopProduct
from hindcast.actors.environments.webshop.reward import Bought, Nouns, nouns_of, reward_of
from hindcast.actors.environments.webshop.shop import WebshopShop
from hindcast.actors.environments.webshop.views import WebshopLocation
from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.domain.task import Task
from hindcast.core.structs import convert


class PurchaseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`Evidence.probes` of a visit."""

    shop: str
    """Digest of the products; empty where the shop is another server's."""
    bought: Bought | None = None
    nouns: Nouns | None = None
    """Computed when the visit ended, so that a later judge needs no spaCy and gets the same."""
    score: float | None = None
    """The score on another server's last page."""


def record_at(shop: WebshopShop, location: WebshopLocation | None, goal: WebshopGoal) -> PurchaseRecord:
    """The record of a visit that ended at a place; a purchase is only a "done" page of this goal."""
    product = shop.get(location.asin) if location is not None else None
    if location is None or location.kind != "done" or location.goal != goal.digest:
        return PurchaseRecord(shop=shop.digest)
    if product is None or not product.offers(location.options):
        return PurchaseRecord(shop=shop.digest)
    return PurchaseRecord(
        shop=shop.digest,
        bought=_bought(product, location.options),
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


def evaluate(task: Task, evidence: Evidence) -> Judgment:
    """WebShop's reward, a success when it is 1; undecided without a usable record."""
    try:
        record = convert(evidence.probes, PurchaseRecord)
        if "session" in task.goal:
            return _by_score(record)
        goal = convert(task.goal["wanted"], WebshopGoal)
    except (msgspec.ValidationError, KeyError) as error:
        return undecided(f"goal or record are missing or damaged: {error}")
    if record.shop != task.goal.get("shop"):
        return undecided(f"the shop had products {record.shop}, the task is about {task.goal.get('shop')}")
    if record.bought is None or record.nouns is None:
        return decided(False, "nothing was bought")
    reward = reward_of(record.bought, goal, record.nouns)
    return Judgment(
        outcome="success" if reward.total == 1 else "failure",
        reward=reward.total,
        reason=(
            f"bought {record.bought.asin}: attributes {reward.attributes_found}/{reward.attributes}, "
            f"options {reward.options_found}/{reward.options}, price {'fits' if reward.price_fits else 'too high'}, "
            f"type {reward.r_type:g} (nouns by {record.nouns.rule})"
        ),
    )


def _by_score(record: PurchaseRecord) -> Judgment:
    if record.score is None:
        return decided(False, "the server's last page shows no score")
    if not 0 <= record.score <= 1:
        return undecided(f"the server's last page shows the score {record.score}, which is not in [0, 1]")
    return Judgment(
        outcome="success" if record.score == 1 else "failure",
        reward=record.score,
        reason=f"the server's last page shows the score {record.score:g}",
    )
