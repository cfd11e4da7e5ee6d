"""Both dialects, their comments and quirks, and what a failure says."""

import pytest

from hindcast.core.domain.action import ACTIONS, Action, ParseFailure
from hindcast.core.domain.observation import Node, Page
from hindcast.core.grammar.answer_constraints import ActionChoice, FreeText, forms_of
from hindcast.core.grammar.answer_parser import format_answer, parse_answer
from hindcast.core.grammar.dialects import read_browsergym

READ = {
    'do(action="Click", element="7")': Action(name="Click", element=7),
    "do(action='Click', element='[7]')": Action(name="Click", element=7),
    "do(action='Click', element=7)": Action(name="Click", element=7),
    'do("Click", element="7")': Action(name="Click", element=7),
    '# Element: Reports [7]\n# Note: a plan\ndo(action="Click", element="7")': Action(
        name="Click", element=7
    ),
    '```python\ndo(action="Click", element="7")\n```': Action(name="Click", element=7),
    'do(action="Click", element="7", argument="")': Action(name="Click", element=7),
    'do(action="Click", element="7",)  # the link': Action(name="Click", element=7),
    'do(action="Type", argument="say \\"hi\\", (x)", element="22")': Action(
        name="Type", element=22, argument='say "hi", (x)'
    ),
    'do(action="Search", argument="mug", element="13")': Action(name="Search", element=13, argument="mug"),
    'do(action="Select Dropdown Option", argument="Blue", element="20")': Action(
        name="Select Dropdown Option", element=20, argument="Blue"
    ),
    'do(action="Press Enter")': Action(name="Press", argument="Enter"),
    'do(action="Press", argument="Enter", element="3")': Action(name="Press", element=3, argument="Enter"),
    'do(action="Scroll Down")': Action(name="Scroll Down"),
    'do(action="scroll_up")': Action(name="Scroll Up"),
    'do(action="Right Click", element="1")': Action(name="Right Click", element=1),
    'do(action="Goto", argument="/cart")': Action(name="Goto", argument="/cart"),
    'do(action="New_tab")': Action(name="New_tab"),
    'do(action="Tab_focus", argument="1")': Action(name="Tab_focus", argument="1"),
    'do(action="Switch Tab", argument="1")': Action(name="Tab_focus", argument="1"),
    "go_backward()": Action(name="Go_backward"),
    'exit(message="$9.95")': Action(name="exit", argument="$9.95"),
    "exit()": Action(name="exit"),
    "click('12')": Action(name="Click", element=12),
    "fill('12', 'some text')": Action(name="Type", element=12, argument="some text"),
    "select_option('48', 'blue')": Action(name="Select Dropdown Option", element=48, argument="blue"),
    "press('88', 'Enter')": Action(name="Press", element=88, argument="Enter"),
    "keyboard_press('Tab')": Action(name="Press", argument="Tab"),
    "hover('3')": Action(name="Hover", element=3),
    "scroll(0, 200)": Action(name="Scroll Down"),
    "scroll(0, -50.2)": Action(name="Scroll Up"),
    "noop()": Action(name="Wait"),
    "goto('http://127.0.0.1/')": Action(name="Goto", argument="http://127.0.0.1/"),
    "go_back()": Action(name="Go_backward"),
    "new_tab()": Action(name="New_tab"),
    "tab_focus(2)": Action(name="Tab_focus", argument="2"),
    "tab_close()": Action(name="Close_tab"),
    "send_msg_to_user('42')": Action(name="exit", argument="42"),
    "send_msg_to_user()": Action(name="exit"),
    "report_infeasible('There is no such lamp.')": Action(name="exit", argument="N/A"),
    "click('12', button='right')": Action(name="Right Click", element=12),
    "click('12', 'left', [])": Action(name="Click", element=12),
    "fill('12', 'it\\'s \\\\ \\n', True)": Action(name="Type", element=12, argument="it's \\ \n"),
    "clear('12')": Action(name="Type", element=12, argument=""),
    "select_option('48', ['blue'])": Action(name="Select Dropdown Option", element=48, argument="blue"),
    "noop(500)": Action(name="Wait"),
    "search('3', 'mug')": Action(name="Search", element=3, argument="mug"),
    "new_tab('/cart')": Action(name="New_tab", argument="/cart"),
    "# Element: Buy [3]\nclick('3')": Action(name="Click", element=3),
}


@pytest.mark.parametrize("answer", READ)
def test_an_answer_is_read(answer: str) -> None:
    assert parse_answer(answer) == READ[answer]


READ_AS_RELEASED = {
    'I will open it. do(action="Click", element="7")': Action(name="Click", element=7),
    '# Element: Reports [7] do(action="Click", element="7")': Action(name="Click", element=7),
    'do(action="Click", element="7") do(action="Click", element="8")': Action(name="Click", element=8),
    'do(action="Click", element="7)\ndo(action="Click", element="8")': Action(name="Click", element=8),
    'do(action="Click", element="7")\nexit(message="4")': Action(name="exit", argument="4"),
    'do(action="Click", # the link\n  element="7")': Action(name="Click", element=7),
    'do(action="Click", element=("7"))': Action(name="Click", element=7),
    'do(action="Click", action="Hover", element="7")': Action(name="Hover", element=7),
    'do(action="Click", element="7", colour="red")': Action(name="Click", element=7),
    'do("the link", action="Click", element="7")': Action(name="Click", element=7),
    'do(action="Press Enter", element="7")': Action(name="Press", argument="Enter"),
    'do(action="Press Enter", element="the field")': Action(name="Press", argument="Enter"),
    'exit(message="4", why="seen")': Action(name="exit", argument="4"),
    'exit(message="""a "quoted"\n# line""")': Action(name="exit", argument='a "quoted"\n# line'),
    "exit(message=" + "'" * 3 + "it's" + "'" * 3 + ")": Action(name="exit", argument="it's"),
    r"exit(message='\x41\u00e9\101\N{BULLET}\b')": Action(name="exit", argument="A\xe9A\u2022\b"),
    'exit(message="one\\\ntwo")': Action(name="exit", argument="onetwo"),
    "exit(message=r'a\\n' \"b\")": Action(name="exit", argument="a\\nb"),
}
"""As `create_webrl_id_based_action` of THUDM/VisualAgentBench reads them."""


@pytest.mark.parametrize("answer", READ_AS_RELEASED)
def test_an_answer_is_read_as_webrl_s_released_parser_reads_it(answer: str) -> None:
    assert parse_answer(answer) == READ_AS_RELEASED[answer]


@pytest.mark.parametrize("escape", [r"\ud83d", r"\U00110000", r"\xg1", r"\u12", r"\N{no such name}", r"\q"])
def test_an_escape_of_no_character_stays_as_it_is_written(escape: str) -> None:
    """A lone half of a character could not be stored."""
    assert parse_answer(f'exit(message="{escape}")') == Action(name="exit", argument=escape)


REFUSED = {
    'do(action="Click", element="7") and then wait': "expected one call",
    'exit(message="4")\ndo(action="Click", element="7")': "expected one call",
    # a call in the quotes of another is text, also where the other is cut short
    "do(action=\"Type\", argument=\"do(action='Click', element='7')": "not closed",
    "do(action=\"Type\", argument=\"do(action='Click', element='7') #\")": "needs element",
    "": "found nothing",
    "# Note: only thinking": "found nothing",
    "I would click the link.": "expected a call",
    'do(action="Click")': "needs element",
    'do(action="Type", element="3")': "needs argument",
    'do(action="Fly", element="3")': "unknown action 'Fly'",
    'do(element="3")': "lacks its action",
    'do(action="Click", element="the button")': "element's number",
    'do(action="Click", element="7"': "expected , or )",
    'do(action="Click", element="7': "not closed",
    "__import__('os')": "expected do(…) or exit(…)",
    "do(action=open('x'))": "expected a quoted text",
    "exit('a', 'b')": "expected at most message",
    "dblclick('3')": "click twice",
    "drag_and_drop('3', '4')": "not offered",
    "click('3', modifiers=['Shift'])": "'Shift' held",
    "click('3', button='middle')": "left or the right button",
    "click('3', bid='4')": "given twice",
    'click(element="3")': "expected bid",
    'new_tab(argument="/cart")': "expected url",
    "select_option('3', ['a', 'b'])": "a list of one value",
    "select_option('3', [['a']])": "a text in a list",
    "scroll(200, 0)": "scroll up or down",
    "scroll(0, 'far')": "number of pixels",
    "go_back(1)": "at most 0 values",
    "click('a12')": "element's number",
    "mouse_click(1, 2)": "expected do(…)",
}


@pytest.mark.parametrize("answer", REFUSED)
def test_an_unreadable_answer_says_what_was_expected(answer: str) -> None:
    parsed = parse_answer(answer)
    assert isinstance(parsed, ParseFailure)
    assert REFUSED[answer] in parsed.reason


def test_an_endless_answer_is_not_read_at_all() -> None:
    parsed = parse_answer("do(" * 100_000)
    assert isinstance(parsed, ParseFailure)
    assert "300000 characters" in parsed.reason


def test_an_answer_is_formatted_with_the_element_it_is_about() -> None:
    node = Node(kind="link", tag="a", id=7, text="Reports about everything\nthat happened in the last year")
    page = Page(url="", title="", nodes=(node,))
    assert format_answer(Action(name="Type", element=7, argument='a "b"\nc'), page) == (
        "# Element: Reports about everything that happened i [7]\n"
        'do(action="Type", argument="a \\"b\\"\\nc", element="7")'
    )
    assert format_answer(Action(name="Scroll Down"), page) == 'do(action="Scroll Down")'
    assert format_answer(Action(name="exit", argument="42"), page) == 'exit(message="42")'
    assert format_answer(Action(name="exit"), page) == "exit()"


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        ("4.0 stars", '# Note: Rating 4.0 stars\nexit(message="4.0 stars")'),
        ("$7.50", '# Note: Amber lamp | $7.50\nexit(message="$7.50")'),
        ("stars", '# Note: Rating 4.0 stars\nexit(message="stars")'),
        ("star", 'exit(message="star")'),
        ("done", 'exit(message="done")'),
        ("", 'exit(message="")'),
    ],
)
def test_a_message_quotes_the_line_it_is_taken_from(message: str, answer: str) -> None:
    texts = ("Amber lamp", "$7.50", "Rating\n4.0 stars", "done " * 40)
    page = Page(url="", title="", nodes=tuple(Node(kind="text", tag="p", text=text) for text in texts))
    assert format_answer(Action(name="exit", argument=message), page) == answer


WRITTEN = {
    Action(name="Click", element=12): 'click("12")',
    Action(name="Right Click", element=12): 'click("12", button="right")',
    Action(name="Hover", element=1): 'hover("1")',
    Action(name="Type", element=5, argument='a "b"\n'): 'fill("5", "a \\"b\\"\\n")',
    Action(name="Search", element=5, argument="mug"): 'search("5", "mug")',
    Action(name="Press", element=5, argument="Enter"): 'press("5", "Enter")',
    Action(name="Press", argument="Tab"): 'keyboard_press("Tab")',
    Action(name="Scroll Up"): "scroll(0, -500)",
    Action(name="Scroll Down"): "scroll(0, 500)",
    Action(name="Select Dropdown Option", element=4, argument="Blue"): 'select_option("4", "Blue")',
    Action(name="Wait"): "noop()",
    Action(name="New_tab"): "new_tab()",
    Action(name="Tab_focus", argument="1"): "tab_focus(1)",
    Action(name="Tab_focus", argument="the first"): 'tab_focus("the first")',
    Action(name="Close_tab"): "tab_close()",
    Action(name="Goto", argument="/cart"): 'goto("/cart")',
    Action(name="Go_backward"): "go_back()",
    Action(name="Go_forward"): "go_forward()",
    Action(name="exit", argument="42"): 'send_msg_to_user("42")',
    Action(name="exit", argument="N/A"): 'report_infeasible("N/A")',
    Action(name="exit"): "send_msg_to_user()",
}


@pytest.mark.parametrize("action", WRITTEN, ids=WRITTEN.values())
def test_an_action_is_written_in_the_calls_of_browsergym(action: Action) -> None:
    page = Page(url="", title="", nodes=())
    *comments, call = format_answer(action, page, "browsergym").split("\n")
    assert call == WRITTEN[action]
    assert all(line.startswith("# Element: ") for line in comments)


def test_every_action_has_a_call_in_the_dialect_of_browsergym() -> None:
    assert {action.name for action in WRITTEN} == set(ACTIONS)


@pytest.mark.parametrize("name", ["do", "exit"])
def test_calls_of_webrl_are_no_functions_of_browsergym(name: str) -> None:
    assert read_browsergym(name, ([], {})) is None


@pytest.mark.parametrize("rationale", [False, True])
def test_choices_of_a_scaffold_are_written_in_the_dialect_that_is_asked_for(rationale: bool) -> None:
    page = Page(url="", title="", nodes=(Node(kind="input", tag="input", text="Find", id=2),))
    choices = (
        ActionChoice(action=Action(name="Search", element=2), free=True),
        ActionChoice(action=Action(name="exit"), free=True),
        ActionChoice(action=Action(name="Go_backward")),
    )
    forms = forms_of(choices, page, rationale=rationale, dialect="browsergym")
    answers = ["".join("mug" if isinstance(piece, FreeText) else piece for piece in form) for form in forms]
    assert {answer.rpartition("\n")[2] for answer in answers} == {
        'search("2", "mug")',
        'send_msg_to_user("mug")',
        "go_back()",
    }
    assert all(isinstance(parse_answer(answer), Action) for answer in answers)
