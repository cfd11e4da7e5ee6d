"""What the store's rules say an episode achieved, where they cut it, and which steps they call relevant."""

from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random

import msgspec
import pytest

from hindcast.actors.environments.store.evaluators import evaluate
from hindcast.actors.environments.store.families import FAMILIES
from hindcast.actors.environments.store.hindsight import Hindsight, Walk, goal_key, hindsight_of
from hindcast.actors.environments.store.tasks import StoreTasks
from hindcast.core.domain.action import Action
from hindcast.core.domain.evidence import Evidence
from hindcast.core.domain.task import Task
from hindcast.core.settings.schema import SiteSettings
from stories.store_visitor import running_store
from stories.store_walk import Visit

pytestmark = pytest.mark.torch

SETTINGS = SiteSettings(products=60)
TASKS = StoreTasks(SETTINGS)


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    with running_store(SETTINGS) as base_url:
        yield base_url


def accepted(visit: Visit, found: Hindsight, *, at: int | None = None) -> bool:
    """Whether the goal's own evaluator accepts the visit as it stood after so many steps; by default where it was cut."""
    probes = dict(visit.evidence.probes)
    steps = found.until_step if at is None else at
    answered = steps == len(visit.actions) and visit.answer is not None
    if not answered:
        after = visit.pages[steps].ordinal if steps < len(visit.pages) else None
        probes["journal"] = probes["journal"][:after]
        probes["state"] = probes["opening"]
    task = msgspec.structs.replace(visit.task, family=found.family, goal=found.goal)
    evidence = Evidence(answer=visit.answer if answered else None, final_url="", probes=probes)
    return evaluate(task, evidence).outcome == "success"


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_what_a_demonstrator_did_was_all_relevant_to_what_it_was_asked(store: str, family: str) -> None:
    for seed in range(3):
        visit = Visit(store, TASKS.task(family, seed))
        visit.demonstrate()
        found = visit.hindsight()
        own = goal_key(family, visit.task.goal)
        if not any(goal_key(one.family, one.goal) == own for one in found if one.family == family):
            assert visit.task.goal["kind"] in ("order", "product"), "only what nobody looked up is not found"
            continue
        assert found[0].instruction == visit.task.instruction
        assert set(found[0].relevance) == {1.0}
        assert all(accepted(visit, one) for one in found)


def elsewhere(task: Task) -> Sequence[str]:
    """Titles of products that a task does not speak of."""
    return [
        product.title
        for product in TASKS.catalogue.products
        if product.title != task.goal["title"] and product.noun != task.goal["title"].split()[-1]
    ]


def test_a_detour_is_irrelevant_to_the_goal_and_makes_a_goal_of_its_own(store: str) -> None:
    task = TASKS.task("buy", 1)
    visit = Visit(store, task)
    other = elsewhere(task)[0]
    visit.search(other)
    visit.press(other)
    visit.press("Add to wish list")
    visit.demonstrate()
    assert evaluate(task, visit.evidence).outcome == "success"
    own, *others = visit.hindsight()
    assert own.relevance[:3] == (0.0, 0.0, 0.0)
    assert set(own.relevance[3:]) == {1.0}
    wish = next(one for one in others if one.family == "wish_list")
    assert (wish.until_step, wish.relevance, wish.goal["title"]) == (3, (1.0, 1.0, 1.0), other)


def test_what_was_undone_counts_for_nothing_that_came_after_it(store: str) -> None:
    task = TASKS.task("add_to_cart", 0)
    visit = Visit(store, task)
    visit.demonstrate(msgspec.structs.replace(task, max_steps=3))
    visit.press("Remove")
    visit.demonstrate()
    own = visit.hindsight()[0]
    assert own.until_step == 3, "it was reached first before it was undone"
    later = [one for one in visit.hindsight() if one.until_step > 4]
    assert not later, "and the second time is no goal of its own"


def test_a_goal_is_cut_where_it_was_reached_first_and_said_once_however_many_words_there_are(
    store: str,
) -> None:
    task = TASKS.task("add_several", 1)
    visit = Visit(store, task)
    visit.demonstrate()
    found = visit.hindsight()
    assert [(one.family, one.until_step) for one in found] == [("add_several", 7), ("add_to_cart", 3)]
    meanings = [(one.family, goal_key(one.family, one.goal)) for one in found]
    assert len(set(meanings)) == len(meanings)


def test_other_families_take_no_place_from_the_wanted_ones(store: str) -> None:
    task = TASKS.task("find_product", 2)
    visit = Visit(store, task)
    visit.demonstrate()
    every = visit.hindsight()
    kinds = Counter(one.family for one in every)
    assert len(kinds) > 1
    for family, count in kinds.items():
        found = hindsight_of(task, visit.evidence, visit.walk, max_goals=count, families={family})
        assert found == [one for one in every if one.family == family]
    assert hindsight_of(task, visit.evidence, visit.walk, max_goals=9, families=()) == []


def test_a_visit_that_only_leaves_achieved_nothing(store: str) -> None:
    visit = Visit(store, TASKS.task("buy", 1))
    visit.do(Action(name="exit", argument="done"))
    assert visit.hindsight() == []


def test_without_a_record_of_the_store_nothing_is_told(store: str) -> None:
    visit = Visit(store, TASKS.task("buy", 1))
    visit.demonstrate()
    walk = Walk(visit.pages, visit.actions, [True] * len(visit.actions))
    damaged = Evidence(answer="done", final_url="", probes={})
    assert hindsight_of(visit.task, damaged, walk, max_goals=8) == []


def test_equal_episodes_are_told_of_in_equal_words(store: str) -> None:
    visits = [Visit(store, TASKS.task("find_product", 2)) for _ in range(2)]
    for visit in visits:
        visit.demonstrate()
    one, other = (visit.hindsight(most=5) for visit in visits)
    assert one == other
    assert len(one) == 5


@pytest.mark.parametrize("seed", range(6))
def test_whatever_a_visitor_does_each_goal_holds_where_it_is_cut_and_not_a_step_before(
    store: str, seed: int
) -> None:
    random = Random(seed)
    visit = Visit(store, TASKS.task(random.choice(["buy", "change_quantity", "cancel_order"]), seed))
    for _ in range(25):
        visit.wander(random)
    shown = TASKS.catalogue[random.choice([product.id for product in TASKS.catalogue.products[:9]])]
    visit.do(Action(name="exit", argument=random.choice([shown.price, shown.title, "N/A"])))
    for found in visit.hindsight():
        assert accepted(visit, found)
        assert not any(accepted(visit, found, at=at) for at in range(1, found.until_step))
        assert found.relevance[-1] == 1.0, "the step that reached it"
