"""The verdict on a visit to WebShop. Reads evidence and the task alone, so that judging again is a replay."""

import msgspec

from hindcast.actors.environments.webshop.goals import WebshopGoal
from hindcast.actors.environments.webshop.record import PurchaseRecord
from hindcast.actors.environments.webshop.reward import reward_of
from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.domain.task import Task


def evaluate(task: Task, evidence: Evidence) -> Judgment:
    """WebShop's reward, a success when it is 1; undecided without a usable record."""
    try:
        record = msgspec.convert(evidence.probes, PurchaseRecord)
        if "session" in task.goal:
            return _by_score(record)
        goal = msgspec.convert(task.goal["wanted"], WebshopGoal)
    except (msgspec.ValidationError, KeyError) as error:
        return _undecided(f"goal or record are missing or damaged: {error}")
    if record.shop != task.goal.get("shop"):
        return _undecided(f"the shop had products {record.shop}, the task is about {task.goal.get('shop')}")
    if record.bought is None or record.nouns is None:
        return Judgment(outcome="failure", reward=0.0, reason="nothing was bought")
    found = reward_of(record.bought, goal, record.nouns)
    return Judgment(
        outcome="success" if found.total == 1 else "failure",
        reward=found.total,
        reason=(
            f"bought {record.bought.asin}: attributes {found.attributes_found}/{found.attributes}, "
            f"options {found.options_found}/{found.options}, price {'fits' if found.price_fits else 'too high'}, "
            f"type {found.r_type:g} (nouns by {record.nouns.rule})"
        ),
    )


def _by_score(record: PurchaseRecord) -> Judgment:
    if record.score is None:
        return Judgment(outcome="failure", reward=0.0, reason="the server's last page shows no score")
    if not 0 <= record.score <= 1:
        return _undecided(f"the server's last page shows the score {record.score}, which is not in [0, 1]")
    return Judgment(
        outcome="success" if record.score == 1 else "failure",
        reward=record.score,
        reason=f"the server's last page shows the score {record.score:g}",
    )


def _undecided(why: str) -> Judgment:
    return Judgment(outcome="undecided", reward=0.0, reason=why)
