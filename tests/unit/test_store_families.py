"""Every family's evaluator against right and wrong endings, built from facts without a server."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from hindcast.actors.environments.store.evaluators import achieved_goals, evaluate
from hindcast.actors.environments.store.families import FAMILIES
from hindcast.actors.environments.store.session import (
    Added,
    Address,
    AnyFact,
    Cancelled,
    CartLine,
    Listed,
    Moved,
    Order,
    Ordered,
    Removed,
    Requantified,
    Reviewed,
    Unwished,
    Viewed,
    VisitRecord,
    Wished,
    WrittenReview,
    apply,
    opening_state,
)
from hindcast.actors.environments.store.tasks import StoreTasks
from hindcast.core.domain.evidence import Evidence
from hindcast.core.domain.task import Task
from hindcast.core.errors import SettingsError
from hindcast.core.settings.schema import SiteSettings

SETTINGS = SiteSettings()
TASKS = StoreTasks(SETTINGS)
SEEDS = range(12)


def evidence(task: Task, facts: Sequence[AnyFact] = (), answer: str | None = "done") -> Evidence:
    opening = opening_state(TASKS.catalogue, task.family, task.seed)
    state = opening
    for fact in facts:
        state = apply(state, fact)
    record = VisitRecord(
        catalogue=TASKS.catalogue.name,
        products=SETTINGS.products,
        catalogue_seed=SETTINGS.catalogue_seed,
        family=task.family,
        seed=task.seed,
        opening=opening,
        journal=tuple(facts),
        state=state,
    )
    return Evidence(answer=answer, final_url="/", probes=msgspec.to_builtins(record))


def reward(task: Task, facts: Sequence[AnyFact] = (), answer: str | None = "done") -> float:
    judgment = evaluate(task, evidence(task, facts, answer))
    assert judgment.outcome == ("success" if judgment.reward else "failure")
    assert judgment.reason
    return judgment.reward


def line_of(goal: dict[str, Any]) -> CartLine:
    return CartLine(
        product=goal["product"], colour=goal["colour"], size=goal["size"], quantity=goal["quantity"]
    )


def ordered(*lines: CartLine) -> Ordered:
    address = Address(name="Mira Berg", street="1 Mill Lane", city="Porto")
    return Ordered(order=Order(number=9999, date="1 July", status="processing", lines=lines, address=address))


def other_product(product: int) -> int:
    return product % SETTINGS.products + 1


@pytest.mark.parametrize("family", ["find_price", "find_rating"])
@pytest.mark.parametrize("seed", SEEDS)
def test_number_answers(family: str, seed: int) -> None:
    task = TASKS.task(family, seed)
    right = task.goal["answer"]
    assert reward(task, answer=right) == 1
    assert reward(task, answer=f"It is {right}.") == 1
    wrong = "999.95" if family == "find_price" else "1.7"
    for answer in (None, "", "done", "N/A", wrong, f"{right} or {wrong}", right.replace(".", "") + "7"):
        assert reward(task, answer=answer) == 0, answer


@pytest.mark.parametrize("seed", SEEDS)
def test_feature_answers(seed: int) -> None:
    task = TASKS.task("find_feature", seed)
    right = task.goal["answer"]
    assert reward(task, answer=right) == 1
    assert reward(task, answer=f"The answer is {right.upper()}.") == 1
    for answer in (
        None,
        "",
        "done",
        "blue",
        f"{right}, dry clean, Japan, 3 years, 4.8 kg, Spain, 1 year, 0.2 kg, air dry",
    ):
        assert reward(task, answer=answer) == 0, answer


@pytest.mark.parametrize("seed", SEEDS)
def test_comparisons_name_one_of_two(seed: int) -> None:
    task = TASKS.task("compare", seed)
    loser = next(title for title in task.goal["titles"] if title != task.goal["answer"])
    assert reward(task, answer=task.goal["answer"]) == 1
    for answer in (None, loser, f"{task.goal['answer']} and {loser}", "the first"):
        assert reward(task, answer=answer) == 0, answer


@pytest.mark.parametrize("seed", SEEDS)
def test_a_search_for_the_best_names_one_product(seed: int) -> None:
    task = TASKS.task("find_product", seed)
    title = task.goal["answer"]
    others = [p.title for p in TASKS.catalogue.matching(noun=title.split()[-1]) if p.title != title]
    assert reward(task, answer=f"the {title}") == 1
    for answer in (None, others[0], f"{title}, {others[0]}", title.rsplit(" ", 1)[0]):
        assert reward(task, answer=answer) == 0, answer


@pytest.mark.parametrize("seed", SEEDS)
def test_the_cart_holds_exactly_what_was_asked(seed: int) -> None:
    task = TASKS.task("add_to_cart", seed)
    line = line_of(task.goal)
    assert reward(task, [Added(line=line)]) == 1
    assert reward(task, [Added(line=line)], answer=None) == 1
    more = msgspec.structs.replace(line, quantity=line.quantity + 1)
    foreign = CartLine(product=other_product(line.product))
    odd = msgspec.structs.replace(line, colour="pink")
    for facts in (
        [],
        [Added(line=more)],
        [Added(line=foreign)],
        [Added(line=odd)],
        [Added(line=line), Added(line=foreign)],
    ):
        assert reward(task, facts) == 0
    assert reward(task, [Added(line=line), ordered(line)]) == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_several_things_in_either_order(seed: int) -> None:
    task = TASKS.task("add_several", seed)
    one, other = (Added(line=line_of(item)) for item in task.goal["items"])
    assert reward(task, [one, other]) == 1
    assert reward(task, [other, one]) == 1
    for facts in ([], [one], [other], [one, other, one], [one, one]):
        assert reward(task, facts) == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_buying_means_one_order_of_one_line(seed: int) -> None:
    task = TASKS.task("buy", seed)
    line = line_of(task.goal)
    foreign = CartLine(product=other_product(line.product))
    assert reward(task, [Added(line=line), ordered(line)]) == 1
    for facts in (
        [],
        [Added(line=line)],
        [ordered(foreign)],
        [ordered(line, foreign)],
        [ordered(msgspec.structs.replace(line, quantity=line.quantity + 1))],
        [ordered(line), ordered(foreign)],
        [ordered(line), Cancelled(number=9999)],
    ):
        assert reward(task, facts) == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_only_the_line_meant_leaves_the_cart(seed: int) -> None:
    task = TASKS.task("remove_from_cart", seed)
    cart = opening_state(TASKS.catalogue, task.family, seed).cart
    meant = next(line for line in cart if line.product == task.goal["product"])
    other = next(line for line in cart if line.product != task.goal["product"])
    assert reward(task, [Removed(line=meant)]) == 1
    for facts in ([], [Removed(line=other)], [Removed(line=meant), Removed(line=other)], [Added(line=meant)]):
        assert reward(task, facts) == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_only_the_quantity_meant_changes(seed: int) -> None:
    task = TASKS.task("change_quantity", seed)
    cart = opening_state(TASKS.catalogue, task.family, seed).cart
    meant = next(line for line in cart if line.product == task.goal["product"])
    other = next(line for line in cart if line.product != task.goal["product"])
    wanted = task.goal["quantity"]
    change: Callable[[CartLine, int], AnyFact] = lambda line, n: Requantified(  # noqa: E731
        line=msgspec.structs.replace(line, quantity=n)
    )
    assert reward(task, [change(meant, wanted)]) == 1
    for facts in (
        [],
        [change(meant, wanted % 5 + 1)],
        [change(other, 5), change(meant, wanted), Removed(line=other)],
    ):
        assert reward(task, facts) == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_the_wish_list_gains_one_product(seed: int) -> None:
    task = TASKS.task("wish_list", seed)
    product = task.goal["product"]
    assert reward(task, [Wished(product=product)]) == 1
    foreign = Wished(product=other_product(product))
    for facts in (
        [],
        [foreign],
        [Wished(product=product), foreign],
        [Wished(product=product), Unwished(product=product)],
    ):
        assert reward(task, facts) == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_a_review_has_the_stars_and_the_words(seed: int) -> None:
    task = TASKS.task("write_review", seed)
    goal = task.goal
    right = WrittenReview(product=goal["product"], stars=goal["stars"], text=goal["text"])
    assert reward(task, [Reviewed(review=right)]) == 1
    for wrong in (
        msgspec.structs.replace(right, stars=goal["stars"] % 5 + 1),
        msgspec.structs.replace(right, text="Fine"),
        msgspec.structs.replace(right, product=other_product(right.product)),
    ):
        assert reward(task, [Reviewed(review=wrong)]) == 0
    assert reward(task) == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_an_order_has_one_status(seed: int) -> None:
    task = TASKS.task("order_status", seed)
    right = task.goal["answer"]
    assert reward(task, answer=f"It was {right}") == 1
    wrong = "shipped" if right != "shipped" else "returned"
    for answer in (None, "done", wrong, f"{right} or {wrong}"):
        assert reward(task, answer=answer) == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_only_the_order_meant_is_cancelled(seed: int) -> None:
    task = TASKS.task("cancel_order", seed)
    orders = opening_state(TASKS.catalogue, task.family, seed).orders
    meant = Cancelled(number=task.goal["number"])
    other = next(order for order in orders if order.number != meant.number and order.status != "cancelled")
    assert reward(task, [meant]) == 1
    for facts in ([], [Cancelled(number=other.number)], [meant, Cancelled(number=other.number)]):
        assert reward(task, facts) == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_the_address_is_the_new_one_and_the_name_stays(seed: int) -> None:
    task = TASKS.task("change_address", seed)
    name = opening_state(TASKS.catalogue, task.family, seed).address.name
    right = Address(name=name, street=task.goal["street"], city=task.goal["city"])
    assert reward(task, [Moved(address=right)]) == 1
    for wrong in (
        msgspec.structs.replace(right, name="Somebody Else"),
        msgspec.structs.replace(right, street="1 Wrong Way"),
        msgspec.structs.replace(right, city="Nowhere"),
    ):
        assert reward(task, [Moved(address=wrong)]) == 0
    assert reward(task) == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_what_cannot_be_done_is_said_and_nothing_changes(seed: int) -> None:
    task = TASKS.task("impossible", seed)
    for answer in ("N/A", " n/a. "):
        assert reward(task, answer=answer) == 1
    for answer in (None, "", "done", "N/A because it is sold out"):
        assert reward(task, answer=answer) == 0
    assert reward(task, [Wished(product=1), Wished(product=2), Wished(product=3)], answer="N/A") == 0


def test_tasks_are_the_same_in_every_process_and_differ_by_seed() -> None:
    again = StoreTasks(SETTINGS)
    for family in TASKS.families():
        assert TASKS.task(family, 11).id == again.task(family, 11).id
        tasks = [TASKS.task(family, seed) for seed in range(40)]
        assert len({task.id for task in tasks}) == 40
        assert len({task.instruction for task in tasks}) > 30
        assert all(task.instruction and 0 < task.max_steps <= 20 for task in tasks)


def test_small_catalogues_still_offer_every_family() -> None:
    tasks = StoreTasks(SiteSettings(products=20))
    for family in FAMILIES:
        for seed in range(20):
            tasks.task(family, seed)


def test_an_unknown_family_is_refused_in_words() -> None:
    with pytest.raises(SettingsError, match="no task family 'fly'; it has: find_price"):
        TASKS.task("fly", 1)


def test_without_a_usable_record_the_verdict_stays_open() -> None:
    task = TASKS.task("buy", 1)
    for probes in ({}, {"state": 3}, {**evidence(task).probes, "journal": [{"fact": "stolen"}]}):
        broken = Evidence(answer=None, final_url="/", probes=probes)
        judgment = evaluate(task, broken)
        assert (judgment.outcome, judgment.reward) == ("undecided", 0.0)
        assert achieved_goals(broken) == ()
    other = StoreTasks(SiteSettings(products=60)).task("buy", 1)
    assert evaluate(other, evidence(task)).outcome == "undecided"


def test_one_visit_reaches_several_goals_each_at_its_first_fact() -> None:
    task = TASKS.task("find_price", 3)
    catalogue = TASKS.catalogue
    wished = next(
        p for p in catalogue.products if p.id not in opening_state(catalogue, "find_price", 3).wishes
    )
    bought = next(p for p in catalogue.products if not p.colours and not p.sizes and p.id != wished.id)
    line = CartLine(product=bought.id)
    address = opening_state(catalogue, "find_price", 3).address
    facts: list[AnyFact] = [
        Listed(query=wished.title, shown=(wished.id,)),
        Viewed(product=wished.id),
        Wished(product=wished.id),
        Viewed(product=bought.id),
        Added(line=line),
        ordered(line),
        Moved(address=Address(name=address.name, street="100 New Street", city=address.city)),
        Viewed(product=bought.id),
    ]
    goals = achieved_goals(evidence(task, facts, answer=bought.price))
    first = {goal.family: goal.ordinal for goal in reversed(goals)}
    assert first == {"wish_list": 3, "add_to_cart": 5, "buy": 6, "change_address": 7, "find_price": 9}
    texts = {goal.family: goal.instruction for goal in reversed(goals)}
    assert bought.title in texts["buy"]
    assert "100 New Street" in texts["change_address"]
    assert [goal.ordinal for goal in goals] == sorted(goal.ordinal for goal in goals)


def test_a_goal_undone_later_was_still_reached() -> None:
    task = TASKS.task("add_to_cart", 2)
    line = line_of(task.goal)
    facts = [Added(line=line), Removed(line=line)]
    assert reward(task, facts) == 0
    assert any(goal.goal == task.goal and goal.ordinal == 1 for goal in achieved_goals(evidence(task, facts)))
