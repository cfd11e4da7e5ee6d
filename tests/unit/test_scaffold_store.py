"""The store's states on the store's own pages: each page is recognised, and whoever knows the task finds a way through."""

from collections.abc import Iterator

import pytest

from hindcast.actors.environments.store.families import DEMONSTRATORS, FAMILIES
from hindcast.actors.environments.store.tasks import StoreTasks
from hindcast.actors.scaffold.files import site_states
from hindcast.actors.scaffold.scaffold import Scaffold
from hindcast.actors.scaffold.states import SiteStates
from hindcast.core.domain.action import Action
from hindcast.core.domain.observation import Page
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


@pytest.fixture(scope="module")
def states() -> SiteStates:
    found = site_states("laser", "store")
    assert found is not None
    return found


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


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_whoever_knows_the_task_is_never_in_want_of_an_action(
    store: str, states: SiteStates, family: str
) -> None:
    for seed in (1, 2, 3, 4):
        task = TASKS.task(family, seed)
        form = Form(Visitor(store, task))
        actions: list[Action] = []
        while len(actions) < task.max_steps:
            observation = form.observation()
            action = DEMONSTRATORS[family](task, task.instruction, observation, actions)
            actions.append(action)
            state = states.recognise(observation.page)
            assert state is not None
            choices = states.choices(state, observation.page)
            assert allows(choices, action), f"{state.name} lacks {action} for {task.instruction!r}"
            if action.name == "exit":
                break
            form.do(action)


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
