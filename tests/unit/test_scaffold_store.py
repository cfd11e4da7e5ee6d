"""The store's states on the store's own pages: each page is recognised, and whoever knows the task finds a way through."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from hindcast.actors.environments.early_stopping_demonstrator import LEAVE
from hindcast.actors.environments.store.families import DEMONSTRATORS, FAMILIES
from hindcast.actors.environments.store.tasks import StoreTasks
from hindcast.actors.scaffold.files import SHIPPED, site_states
from hindcast.actors.scaffold.scaffold import Scaffold
from hindcast.actors.scaffold.states import SiteStates
from hindcast.core.domain.action import Action
from hindcast.core.domain.observation import Node, Page
from hindcast.core.domain.task import Task
from hindcast.core.grammar.answer_constraints import ActionChoice
from hindcast.core.settings.schema import ScaffoldSettings, SiteSettings
from stories.store_visitor import Form, Visitor, running_store

SETTINGS = SiteSettings(products=60)
TASKS = StoreTasks(SETTINGS)
ON = ScaffoldSettings(states="laser")


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    with running_store(SETTINGS) as base_url:
        yield base_url


def edition(name: str) -> SiteStates:
    found = site_states(name, "store")
    assert found is not None
    return found


@pytest.fixture(scope="module")
def states() -> SiteStates:
    return edition("laser")


def allows(choices: tuple[ActionChoice, ...], action: Action) -> bool:
    return any(
        (one.action.name, one.action.element) == (action.name, action.element)
        and (one.free or one.action.argument == action.argument)
        for one in choices
    )


def test_every_page_of_the_store_is_recognised(store: str, states: SiteStates) -> None:
    visitor = Visitor(store, TASKS.task("cancel_order", 1))

    def state_at(address: str) -> str:
        visitor.get(address)
        page = visitor.observation().page
        found = states.recognise(page)
        if found is None:
            return ""
        assert states.choices(found, page), f"{found.name} allows nothing"
        return found.name

    order = visitor.record()["state"]["orders"][0]["number"]
    assert [state_at(address) for address in ("/", "/search?q=lamp&sort=price", "/search?q=zzzz")] == [
        "home",
        "results",
        "results",
    ]
    assert state_at("/category/lighting") == "results"
    for product in (1, 2, 3, 4):
        assert state_at(f"/product/{product}?colour=red") == "product"
        for part in ("description", "features", "reviews", "write"):
            assert state_at(f"/product/{product}/{part}") == part
    for path in ("cart", "checkout", "wishes", "orders", "account"):
        assert state_at(f"/{path}") == path
    assert state_at("/account/address") == "address"
    assert state_at(f"/orders/{order}") == "order"
    for missing in ("/product/99999", "/nowhere", "/orders/1", "/product/1/price", "/category/nothing"):
        if states.recognise(visitor.observation().page) is not None:
            assert state_at(missing) in ("", "order", "results"), (
                "a missing page offers no more than its kind"
            )


class Step(NamedTuple):
    page: Page
    used: Node | None
    """Element that the step before acted on."""
    action: Action


def demonstrated(store: str, task: Task) -> list[Step]:
    """The steps of the task's scripted demonstrator, the exit included."""
    form = Form(Visitor(store, task))
    steps: list[Step] = []
    used: Node | None = None
    while len(steps) < task.max_steps:
        observation = form.observation()
        earlier = [step.action for step in steps]
        action = DEMONSTRATORS[task.family](task, task.instruction, observation, earlier)
        steps.append(Step(observation.page, used, action))
        if action.name == "exit":
            break
        used = next(node for node in observation.page.nodes if node.id == action.element)
        form.do(action)
    return steps


@pytest.mark.parametrize("family", sorted(FAMILIES))
@pytest.mark.parametrize("name", SHIPPED)
def test_whoever_knows_the_task_is_never_in_want_of_an_action(store: str, name: str, family: str) -> None:
    states = edition(name)
    for seed in (1, 2, 3, 4):
        task = TASKS.task(family, seed)
        steps = demonstrated(store, task)
        assert steps[-1].action.name == "exit"
        for page, used, action in steps:
            state = states.recognise(page, used)
            assert state is not None
            choices = states.choices(state, page)
            assert allows(choices, action), f"{state.name} lacks {action} for {task.instruction!r}"


def may_leave(states: SiteStates, step: Step) -> bool:
    state = states.recognise(step.page, step.used)
    return state is not None and allows(states.choices(state, step.page), LEAVE)


@pytest.mark.parametrize(
    ("name", "allowing"),
    [("laser", {"remove_from_cart", "change_quantity", "cancel_order"}), ("laser/2", set())],
)
def test_haste_is_possible_in_the_first_edition_alone(store: str, name: str, allowing: set[str]) -> None:
    """Haste says done instead of the last action on a page."""
    states, hasty, doing = edition(name), set(), set()
    for family in FAMILIES:
        for seed in (1, 2, 3, 4):
            *_, last, end = demonstrated(store, TASKS.task(family, seed))
            if end.action == LEAVE:
                doing.add(family)
                hasty |= {family} if may_leave(states, last) else set()
    assert len(doing) == 9, "the others end with an answer"
    assert hasty == allowing


def test_done_is_allowed_after_a_confirmation_alone(store: str) -> None:
    """Of the demonstrations, only those with two confirmations pass a page that they could leave too early."""
    states, early = edition("laser/2"), set()
    for family in FAMILIES:
        *before, _ = demonstrated(store, TASKS.task(family, 1))
        early |= {family} if any(may_leave(states, step) for step in before) else set()
    assert early == {"add_several", "buy"}


def test_the_element_that_led_to_a_page_decides_on_its_state(store: str) -> None:
    scaffold = Scaffold(edition("laser/2"), ON, max_steps=9)
    visitor = Visitor(store, TASKS.task("change_quantity", 1))
    visitor.get("/cart")
    page = visitor.observation().page
    number = {node.text: node.id for node in page.nodes if node.kind in ("button", "select")}
    update = Action(name="Click", element=number["Update"])
    select = Action(name="Select Dropdown Option", element=number["Quantity"], argument="3")
    taken: list[Action] = []

    def state() -> str:
        return scaffold.frame(page, step=len(taken), instruction="", actions=taken).record.state

    assert state() == "cart", "no step led here"
    taken.append(update)
    assert state() == "changed_cart"
    assert state() == "changed_cart", "an answer that did not parse changes nothing"
    taken.append(select)
    assert state() == "cart", "the new quantity is not saved yet"
    taken.append(update)
    assert state() == "changed_cart"


def page_of(store: str, address: str) -> Page:
    visitor = Visitor(store, TASKS.task("find_price", 1))
    visitor.get(address)
    return visitor.observation().page


def test_a_product_remembered_is_chosen_when_the_steps_run_out(store: str, states: SiteStates) -> None:
    one, other = TASKS.catalogue[5], TASKS.catalogue[6]
    instruction = f"Buy the {one.title}."
    scaffold = Scaffold(states, ON, max_steps=6)
    told = [
        scaffold.frame(page_of(store, address), step=step, instruction=instruction)
        for step, address in enumerate(
            ("/", f"/product/{one.id}", f"/product/{other.id}", "/search?q=lamp", "/search?q=lamp&page=2")
        )
    ]
    assert [each.record.remembered for each in told] == [0, 1, 2, 2, 2]
    assert [each.record.chosen for each in told] == ["", "", "", "", f"/product/{one.id}"]
    assert told[-1].forms is not None
    (only,) = told[-1].forms
    assert only[-1] == f'\ndo(action="Goto", argument="/product/{one.id}")'
    last = scaffold.frame(page_of(store, f"/product/{one.id}"), step=5, instruction=instruction)
    assert last.forms is not None
    text = repr(last.forms)
    assert "Add to cart" not in text, "a rationale comes before, in free words"
    assert "Search" not in text
    assert last.record.choices < told[1].record.choices, "only what closes the task is left"
    assert last.record.chosen == f"/product/{one.id}"


def test_an_empty_memory_chooses_nothing_and_the_episode_goes_on(store: str, states: SiteStates) -> None:
    page = page_of(store, "/search?q=lamp")
    early = Scaffold(states, ON, max_steps=9).frame(page, step=0, instruction="Buy a lamp.")
    late = Scaffold(states, ON, max_steps=9).frame(page, step=8, instruction="Buy a lamp.")
    assert late == early
    assert late.record.choices > 10
    assert (late.record.chosen, late.record.remembered) == ("", 0)


@pytest.mark.parametrize(
    "off", [{"memory": False}, {"backup_at": 0}, {"constrained": False}], ids=lambda off: next(iter(off))
)
def test_what_is_switched_off_chooses_nothing(store: str, states: SiteStates, off: dict[str, object]) -> None:
    scaffold = Scaffold(states, ON.model_copy(update=off), max_steps=2)
    scaffold.frame(page_of(store, "/product/5"), step=0, instruction="Buy it.")
    last = scaffold.frame(page_of(store, "/search?q=lamp"), step=1, instruction="Buy it.")
    assert last.record.chosen == ""
    assert (last.forms is None) == ("constrained" in off)
    assert last.record.remembered == (0 if "memory" in off else 1)


def test_who_is_at_the_till_is_not_called_back(store: str, states: SiteStates) -> None:
    scaffold = Scaffold(states, ON, max_steps=4)
    for step, address in enumerate(("/", "/product/5", "/cart", "/checkout")):
        told = scaffold.frame(page_of(store, address), step=step, instruction="Buy it.")
    assert (told.record.remembered, told.record.chosen) == (1, "")
    assert told.record.choices > 5


def test_who_looks_at_the_chosen_product_already_only_closes(store: str, states: SiteStates) -> None:
    scaffold = Scaffold(states, ON, max_steps=2)
    told = scaffold.frame(page_of(store, "/product/5"), step=0, instruction="Buy it.")
    assert told.record.chosen == "/product/5"
    assert told.forms is not None
    assert "Goto" not in repr(told.forms)
    assert "Search" not in repr(told.forms)


@pytest.mark.parametrize("shown", ["nothing", "instruction", "layout"])
def test_prompts_say_as_much_of_the_state_as_was_asked_for(
    store: str, states: SiteStates, shown: str
) -> None:
    scaffold = Scaffold(states, ON.model_copy(update={"shown": shown}), max_steps=9)
    heading = scaffold.frame(page_of(store, "/cart"), step=0, instruction="").heading
    assert ("state cart: Say done once" in heading) == (shown != "nothing")
    assert ("link Check out [12]" in heading) == (shown == "layout")
    assert heading == "" or heading.endswith("\n")


def test_a_page_in_no_state_is_left_alone(states: SiteStates) -> None:
    page = Page(url="http://other.example/nowhere", title="Elsewhere", nodes=())
    told = Scaffold(states, ON, max_steps=9).frame(page, step=8, instruction="Buy it.")
    assert (told.heading, told.forms) == ("", None)
    assert (told.record.state, told.record.choices) == ("", 0)
    assert told.record.rules.startswith("store@")
