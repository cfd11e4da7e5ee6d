"""The strict judge: what the rules call a success, unless it was partial, unfinished, or not all that was done."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hindcast.actors.environments.store.evaluators import CHANGES
from hindcast.actors.environments.store.families import FAMILIES
from hindcast.actors.environments.store.tasks import StoreTasks
from hindcast.actors.judges.rules import RuleJudge
from hindcast.actors.judges.strict import StrictJudge
from hindcast.app.system.judges import open_judges
from hindcast.core.domain.evidence import Evidence
from hindcast.core.domain.task import Task
from hindcast.core.errors import PluginError
from hindcast.core.settings.schema import Settings, SiteSettings
from hindcast.storage.blobs.store import BlobStore
from stories.store_visitor import demonstrate, running_store

SITE = SiteSettings(products=60)
TASKS = StoreTasks(SITE)
RULES, STRICT = RuleJudge(), StrictJudge()
MINIWOB = Task(environment="miniwob", family="phone-book", seed=1, instruction="", goal={}, max_steps=3)


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    with running_store(SITE) as address:
        yield address


def with_state(evidence: Evidence, **changes: Any) -> Evidence:
    """The evidence of a visit that left these parts of the state otherwise."""
    state = {**evidence.probes["state"], **changes}
    journal = evidence.probes["journal"]
    return msgspec.structs.replace(evidence, probes={**evidence.probes, "state": state, "journal": journal})


@pytest.mark.parametrize("family", FAMILIES)
def test_a_demonstrator_does_what_is_asked_and_nothing_else(store: str, family: str) -> None:
    for seed in (1, 2):
        task = TASKS.task(family, seed)
        evidence = demonstrate(store, task)[0]
        assert STRICT.evaluate(task, evidence) == RULES.evaluate(task, evidence)
        assert STRICT.evaluate(task, evidence).outcome == "success"


def test_it_is_known_of_every_family_what_it_changes() -> None:
    assert set(CHANGES) == set(FAMILIES)


@pytest.mark.parametrize(
    ("part", "left"),
    [
        ("wishes", [1, 2, 3, 4]),
        ("cart", [{"product": 1}]),
        ("reviews", [{"product": 1, "stars": 1, "text": "no"}]),
    ],
)
def test_what_nobody_asked_for_turns_a_success_over(store: str, part: str, left: list[Any]) -> None:
    task = TASKS.task("find_price", 1)
    evidence = with_state(demonstrate(store, task)[0], **{part: left})
    assert RULES.evaluate(task, evidence).outcome == "success"
    judgment = STRICT.evaluate(task, evidence)
    assert (judgment.outcome, judgment.reward) == ("failure", 0.0)
    assert part in judgment.reason


def test_buying_may_not_touch_other_orders_nor_send_the_new_one_elsewhere(store: str) -> None:
    task = TASKS.task("buy", 1)
    evidence = demonstrate(store, task)[0]
    placed, *before = evidence.probes["state"]["orders"]
    cancelled = with_state(evidence, orders=[placed, {**before[0], "status": "cancelled"}, *before[1:]])
    astray = with_state(
        evidence, orders=[{**placed, "address": {**placed["address"], "city": "Nowhere"}}, *before]
    )
    if before[0]["status"] != "cancelled":
        assert f"order {before[0]['number']}" in STRICT.evaluate(task, cancelled).reason
    assert "goes" in STRICT.evaluate(task, astray).reason


def test_a_goal_that_was_left_standing_until_the_steps_ran_out_is_no_success(store: str) -> None:
    task = TASKS.task("wish_list", 1)
    evidence = msgspec.structs.replace(demonstrate(store, task)[0], answer=None)
    assert RULES.evaluate(task, evidence).outcome == "success"
    assert "steps ran out" in STRICT.evaluate(task, evidence).reason


@pytest.mark.parametrize(("raw", "outcome"), [(1.0, "success"), (0.4, "failure"), (-1.0, "failure")])
def test_a_page_must_have_given_its_full_reward(raw: float, outcome: str) -> None:
    evidence = Evidence(answer=None, final_url="", probes={"raw_reward": raw, "done": True, "reason": ""})
    assert STRICT.evaluate(MINIWOB, evidence).outcome == outcome


def test_what_the_rules_cannot_decide_stays_undecided() -> None:
    assert STRICT.evaluate(MINIWOB, Evidence(answer="x", final_url="", probes={})).outcome == "undecided"


async def test_judges_are_told_apart_by_their_names(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path)
    async with open_judges(("rules", "strict"), Settings(), blobs) as judges:
        assert {name: judge.identity.name for name, judge in judges.items()} == {
            "rules": "rules",
            "strict": "strict",
        }
    with pytest.raises(
        PluginError,
        match="'oracle' of judges; there are: endpoint, fuzzy, inspect, orm, recorded, rules, str",
    ):
        async with open_judges(("oracle",), Settings(), blobs):
            pass


@pytest.mark.parametrize(
    ("family", "further", "named"),
    [
        ("add_to_cart", {"fact": "visited", "page": "checkout"}, "the page checkout"),
        ("cancel_order", {"fact": "viewed", "product": 7}, "product 7"),
        ("change_address", {"fact": "listed", "query": "lamp", "shown": []}, "a list of lamp"),
    ],
)
def test_who_goes_on_after_the_goal_has_not_ended_there(
    store: str, family: str, further: dict[str, Any], named: str
) -> None:
    task = TASKS.task(family, 1)
    evidence = demonstrate(store, task)[0]
    journal = [*evidence.probes["journal"], further]
    went_on = msgspec.structs.replace(evidence, probes={**evidence.probes, "journal": journal})
    assert RULES.evaluate(task, went_on).outcome == "success"
    assert STRICT.evaluate(task, went_on).outcome == "failure"
    assert STRICT.evaluate(task, went_on).reason.endswith(f"but it went on after its goal, to {named}")


def test_where_nothing_is_to_be_changed_any_page_may_be_opened(store: str) -> None:
    task = TASKS.task("find_price", 1)
    evidence = demonstrate(store, task)[0]
    journal = [*evidence.probes["journal"], {"fact": "visited", "page": "orders"}]
    looked = msgspec.structs.replace(evidence, probes={**evidence.probes, "journal": journal})
    assert STRICT.evaluate(task, looked) == RULES.evaluate(task, looked)
