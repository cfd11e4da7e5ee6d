"""State files: what they say is what is allowed, and what is wrong with one is said before anything starts."""

from pathlib import Path

import pytest

from hindcast.actors.scaffold.files import SHIPPED, check_states, parse_states, site_states
from hindcast.actors.scaffold.scaffold import Candidate, Scaffold, best, remember, scaffold_of
from hindcast.actors.scaffold.states import CandidateRule, ElementRule
from hindcast.app.settings.configuration import resolve
from hindcast.core.domain.action import Action
from hindcast.core.domain.observation import Node, Page
from hindcast.core.domain.task import Task
from hindcast.core.errors import SettingsError
from hindcast.core.grammar.answer_constraints import ActionChoice
from hindcast.core.settings.schema import ScaffoldSettings

WAY_OUT = '[[state.actions]]\naction = "Go_backward"\n'
PAGE = Page(
    url="http://x/list?q=1#top",
    title="List",
    nodes=(
        Node(kind="heading", tag="h1", text="Two  lamps"),
        Node(kind="link", tag="a", text="Oak lamp", id=1),
        Node(kind="link", tag="a", text="Iron lamp", id=2),
        Node(kind="link", tag="a", text="Sold lamp", id=None),
        Node(kind="button", tag="button", text="Oak lamp", id=4, disabled=True),
        Node(kind="select", tag="select", text="Sort", id=5, options=("up", "down")),
        Node(kind="input", tag="input", text="Find", id=6),
        Node(kind="text", tag="p", text="Price $4.00"),
    ),
)


def states(body: str, *, head: str = 'environment = "x"\n') -> str:
    return f'{head}[[state]]\nname = "list"\npath = "/list"\ninstruction = "Choose."\n{body}'


def choices(body: str) -> list[ActionChoice]:
    site = parse_states(states(body), source="x.toml")
    return list(site.choices(site.state[0], PAGE))


def action(name: str, element: int | None = None, argument: str | None = None) -> ActionChoice:
    return ActionChoice(action=Action(name=name, element=element, argument=argument))


def test_actions_are_allowed_on_elements_that_fit_in_the_order_of_the_page() -> None:
    body = WAY_OUT + '[[state.actions]]\naction = "Click"\nkind = ["link", "button"]\ntext = ".* lamp"\n'
    assert choices(body) == [action("Go_backward"), action("Click", 1), action("Click", 2)], (
        "what has no number or refuses input cannot be chosen"
    )


def test_arguments_are_free_or_given_or_read_from_the_page() -> None:
    body = WAY_OUT + (
        '[[state.actions]]\naction = "Type"\nkind = "input"\n'
        '[[state.actions]]\naction = "Select Dropdown Option"\nkind = "select"\n'
        '[[state.actions]]\naction = "Press"\narguments = ["Enter", "Tab"]\n'
        '[[state.actions]]\naction = "exit"\narguments = ["N/A"]\n'
        'quotes = [{ kind = "text", text = \'Price (.+)\' }, { kind = "heading" }]\n'
    )
    assert choices(body)[1:] == [
        ActionChoice(action=Action(name="Type", element=6), free=True),
        action("Select Dropdown Option", 5, "up"),
        action("Select Dropdown Option", 5, "down"),
        action("Press", None, "Enter"),
        action("Press", None, "Tab"),
        action("exit", None, "N/A"),
        action("exit", None, "$4.00"),
        action("exit", None, "Two lamps"),
    ]


def test_the_first_state_that_covers_a_page_is_the_pages() -> None:
    text = states(WAY_OUT + "\n").replace(
        "[[state]]\n",
        '[[state]]\nname = "full"\npath = "/list"\ninstruction = "I"\n'
        f'shows = [{{ kind = "heading", text = "Three .*" }}]\n{WAY_OUT}[[state]]\n',
        1,
    )
    site = parse_states(text, source="x.toml")
    found = site.recognise(PAGE)
    assert found is not None
    assert found.name == "list", "the other one's heading is not there"
    assert site.recognise(Page(url="http://x/list/2", title="", nodes=())) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("environment = ", "is not TOML"),
        ('environment = "x"\nstate = []', r"has no \[\[state\]\]"),
        (states(WAY_OUT + 'colour = "red"\n'), "is invalid: Object contains unknown field `colour`"),
        (states("").replace('path = "/list"\n', "") + WAY_OUT, "state 'list' has neither path nor shows"),
        (
            states(WAY_OUT).replace('"/list"', '"/li(st"'),
            r"state 'list', path: '/li\(st' is not a regular expression",
        ),
        (
            states('after = { text = "Sa(ve" }\n' + WAY_OUT),
            r"state 'list': 'Sa\(ve' is not a regular expression",
        ),
        (
            states(WAY_OUT.replace("Go_backward", "Fly")),
            "allows 'Fly', which is not an action; actions: Click",
        ),
        (states('uses = ["head"]\n' + WAY_OUT), "uses 'head', which are not groups; groups: none"),
        (states('[[state.actions]]\naction = "Click"\n'), "allows no action that is possible on every page"),
        (
            states(WAY_OUT + '[[state.actions]]\naction = "Wait"\nkind = "link"\n'),
            "Wait takes no element, but kind or text is given",
        ),
        (
            states(WAY_OUT + '[[state.actions]]\naction = "Click"\narguments = ["x"]\n'),
            "Click takes no argument, but arguments or quotes are given",
        ),
        (
            states(
                WAY_OUT
                + '[[state.actions]]\naction = "Type"\n[[state.actions]]\naction = "Type"\narguments = ["x"]\n'
            ),
            "allows Type with given arguments and with any text",
        ),
        (states(WAY_OUT) + states(WAY_OUT, head=""), "two states are called 'list'"),
        (
            states(WAY_OUT, head='environment = "x"\n[backup]\naction = "Click"\nargument = "address"\n'),
            r"\[backup\] action 'Click' must take an argument and no element: Press, ",
        ),
        (
            states(WAY_OUT, head='environment = "x"\n[backup]\naction = "Goto"\nargument = "address"\n'),
            "no state shows one",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_said(text: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said) as raised:
        parse_states(text, source="mine.toml")
    assert "the state file mine.toml" in str(raised.value)


def test_settings_are_refused_before_anything_starts(tmp_path: Path) -> None:
    missing = tmp_path / "none.toml"
    with pytest.raises(SettingsError, match=r"the state file .*none\.toml cannot be read"):
        resolve(overrides=[f"scaffold.states={missing}"], environment={}, folder=tmp_path)
    with pytest.raises(SettingsError, match=r"scaffold\.stages = 2"):
        resolve(
            overrides=["scaffold.states=laser", "actors.answer_format=thinking"],
            environment={},
            folder=tmp_path,
        )
    assert resolve(
        overrides=["scaffold.states=laser"], environment={}, folder=tmp_path
    ).settings.scaffold.stages


def test_a_file_is_for_its_environment_alone(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(states(WAY_OUT))
    check_states("laser")
    found = site_states(str(path), "x")
    assert found is not None
    assert found.rules.startswith("x@")
    assert site_states(str(path), "store") is None
    assert site_states("laser", "miniwob") is None
    assert site_states("", "store") is None
    task = Task(environment="miniwob", family="click-test", seed=1, instruction="", goal={}, max_steps=3)
    assert scaffold_of(task, ScaffoldSettings(states="laser")) is None


def test_shipped_states_never_change_because_recorded_steps_name_their_digest() -> None:
    shipped = {(states, name): site_states(states, name) for states in SHIPPED for name in SHIPPED[states]}
    assert {key: found.rules for key, found in shipped.items() if found is not None} == {
        ("laser", "store"): "store@3482c2f8",
        ("laser", "webshop"): "webshop@33f04a4b",
        ("laser/2", "store"): "store.2@8b26ab12",
        ("laser/2", "webshop"): "webshop@33f04a4b",
    }


def test_a_state_may_need_the_element_that_led_to_it() -> None:
    body = states(WAY_OUT + "\n").replace(
        'path = "/list"', 'path = "/list"\nafter = { kind = "button", text = "Save" }'
    )
    site = parse_states(body, source="x.toml")
    save, other = (Node(kind="button", tag="button", text=text, id=1) for text in ("Save", "Save as"))
    assert site.recognise(PAGE, save) == site.state[0]
    assert site.recognise(PAGE, other) is None
    assert site.recognise(PAGE) is None


def test_candidates_are_remembered_once_and_the_best_is_the_one_with_the_words_asked_for() -> None:
    rule = CandidateRule(reads=(ElementRule("heading"),))

    def seen(number: int, text: str) -> Page:
        return Page(
            url=f"http://x/p/{number}?c=1", title="", nodes=(Node(kind="heading", tag="h1", text=text),)
        )

    memory = remember((), seen(1, "Oak lamp"), rule)
    memory = remember(memory, seen(2, "Iron  lamp, small"), rule)
    memory = remember(memory, seen(1, "Oak lamp"), rule)
    assert memory == (
        Candidate(address="/p/2", text="Iron lamp, small"),
        Candidate(address="/p/1", text="Oak lamp"),
    )
    assert best(memory, "Buy the IRON lamp.") == memory[0]
    assert best(memory, "Buy a lamp.") == memory[1], "of equal ones the one looked at last"
    assert best((), "Buy a lamp.") is None


def test_a_backup_may_answer_with_what_was_read() -> None:
    head = 'environment = "x"\n[backup]\naction = "exit"\nargument = "text"\n'
    body = f'searching = true\n{WAY_OUT}[state.candidate]\nreads = [{{ kind = "heading" }}]\n'
    site = parse_states(states(body, head=head), source="x.toml")
    scaffold = Scaffold(site, ScaffoldSettings(states="x.toml", stages=1), max_steps=1)
    told = scaffold.frame(PAGE, step=0, instruction="")
    assert told.forms == (('# Note: Two lamps\nexit(message="Two lamps")',),)
