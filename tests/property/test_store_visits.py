"""Whatever a visitor does: no page fails, equal doings give equal pages, and hindsight never invents a goal."""

from collections.abc import Iterator
from urllib.parse import urlencode

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hindcast.actors.environments.store.evaluators import achieved_goals, evaluate
from hindcast.actors.environments.store.families import FAMILIES
from hindcast.actors.environments.store.session import VisitRecord, apply
from hindcast.actors.environments.store.tasks import StoreTasks
from hindcast.core.domain.evidence import Evidence
from hindcast.core.domain.task import Task
from hindcast.core.settings.schema import SiteSettings
from stories.store_visitor import Visitor, running_store

SETTINGS = SiteSettings(products=60)
TASKS = StoreTasks(SETTINGS)

WORDS = st.sampled_from(
    [product.title for product in TASKS.catalogue.products[:12]] + ["lamp", "oak", "red", "N/A"]
)
PRODUCT = st.integers(1, 12)
ORDER = st.integers(0, 5)
DOING = st.one_of(
    st.tuples(st.just("get"), st.sampled_from(["/", "/cart", "/orders", "/wishes", "/account", "/checkout"])),
    st.tuples(st.just("search"), WORDS | st.text(max_size=30), st.sampled_from(["", "price", "rating"])),
    st.tuples(
        st.just("product"), PRODUCT, st.sampled_from(["", "/features", "/reviews", "/description", "/write"])
    ),
    st.tuples(
        st.just("add"), PRODUCT, st.integers(0, 4), st.sampled_from(["small", "large", ""]), st.integers(1, 3)
    ),
    st.tuples(st.just("tidy"), st.integers(0, 3), st.integers(0, 5)),
    st.tuples(st.just("wish"), PRODUCT),
    st.tuples(st.just("unwish"), PRODUCT),
    st.tuples(st.just("buy")),
    st.tuples(st.just("order"), ORDER),
    st.tuples(st.just("cancel"), ORDER),
    st.tuples(
        st.just("move"),
        st.sampled_from(["1 Mill Lane", "2 Park Avenue", ""]),
        st.sampled_from(["Porto", "Lyon"]),
    ),
    st.tuples(st.just("review"), PRODUCT, st.integers(0, 6), WORDS | st.text(max_size=90)),
)
ANSWER = st.one_of(
    st.none(),
    st.sampled_from(["N/A", "done", "delivered", "shipped", "Italy", "2 years"]),
    st.builds(lambda number: TASKS.catalogue[number].price, PRODUCT),
    st.builds(lambda number: TASKS.catalogue[number].title, PRODUCT),
    st.builds(lambda number: TASKS.catalogue[number].rating, PRODUCT),
)
FAMILY = st.sampled_from(sorted(FAMILIES))


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    with running_store(SETTINGS) as base_url:
        yield base_url


def do(visit: Visitor, doing: tuple[str | int, ...]) -> None:
    name, *rest = doing
    state = msgspec.convert(visit.record()["state"], VisitRecord.__annotations__["state"])
    match name, rest:
        case "get", [str(address)]:
            visit.get(address)
        case "search", [query, sort]:
            visit.request("GET", f"/search?{encoded(q=query, sort=sort)}")
        case "product", [number, part]:
            visit.get(f"/product/{number}{part}")
        case "add", [int(number), int(colour), size, quantity]:
            colours = [*TASKS.catalogue[number].colours, "", "", "", "", ""]
            visit.post(f"/product/{number}/cart", colour=colours[colour], size=size, quantity=quantity)
        case "tidy", [int(index), int(quantity)]:
            if state.cart:
                line = state.cart[index % len(state.cart)]
                what = {"product": line.product, "colour": line.colour, "size": line.size}
                visit.post("/cart/quantity" if quantity else "/cart/remove", **what, quantity=quantity)
        case "wish", [number]:
            visit.post(f"/product/{number}/wish")
        case "unwish", [number]:
            visit.post("/wishes/remove", product=number)
        case "buy", _:
            visit.post("/checkout")
        case (("order" | "cancel"), [int(index)]):
            number = state.orders[index % len(state.orders)].number
            if name == "order":
                visit.get(f"/orders/{number}")
            else:
                visit.post(f"/orders/{number}/cancel")
        case "move", [street, city]:
            visit.post("/account/address", name=state.address.name, street=street, city=city)
        case "review", [number, stars, text]:
            visit.post(f"/product/{number}/write", stars=stars, text=text)
        case _:
            raise AssertionError(doing)


def encoded(**fields: str | int) -> str:
    return urlencode({key: str(value).encode("utf-8", "replace") for key, value in fields.items()})


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(family=FAMILY, seed=st.integers(0, 20), doings=st.lists(DOING, max_size=14), answer=ANSWER)
def test_whatever_is_done(
    store: str, family: str, seed: int, doings: list[tuple[str | int, ...]], answer: str | None
) -> None:
    task = TASKS.task(family, seed)
    visit, again = Visitor(store, task), Visitor(store, task)
    for doing in doings:
        do(visit, doing)
        do(again, doing)
        assert visit.status < 500, doing
        assert visit.body == again.body, doing
    record = visit.record()
    assert record == again.record()
    check_record(record, answer, task)
    for one in (visit, again):
        one.control("DELETE", f"/_control/sessions/{one.token}")


def check_record(probes: dict[str, object], answer: str | None, task: Task) -> None:
    record = msgspec.convert(probes, VisitRecord)
    states = [record.opening]
    for fact in record.journal:
        states.append(apply(states[-1], fact))
    assert states[-1] == record.state, "the state is the fold of the journal"

    evidence = Evidence(answer=answer, final_url="/", probes=dict(probes))
    goals = achieved_goals(evidence)
    reached = any(goal.family == task.family and goal.goal == task.goal for goal in goals)
    won = evaluate(task, evidence).reward == 1
    if won and task.family not in ANSWERED:
        assert reached, "a won task is among the goals achieved"
    end = len(record.journal) + 1
    for goal in goals:
        assert 1 <= goal.ordinal <= end
        assert goal.instruction
        asked = Task(
            environment="store",
            family=goal.family,
            seed=record.seed,
            instruction=goal.instruction,
            goal=goal.goal,
            max_steps=1,
        )
        by_then = msgspec.structs.replace(
            record, journal=record.journal[: goal.ordinal], state=states[min(goal.ordinal, end - 1)]
        )
        said = answer if goal.ordinal == end else None
        proof = Evidence(answer=said, final_url="/", probes=msgspec.to_builtins(by_then))
        assert evaluate(asked, proof).reward == 1, (goal, "the evaluator agrees with hindsight")


ANSWERED = {
    "find_price",
    "find_rating",
    "find_feature",
    "find_product",
    "compare",
    "order_status",
    "impossible",
}
"""Families whose goals hindsight grants only to visits that looked: a right guess wins without."""
