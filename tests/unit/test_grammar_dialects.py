"""Both dialects, their comments and quirks, and what a failure says."""

import pytest

from core.action import Action, ParseFailure
from core.grammar import format_answer, parse_answer
from core.observation import Node, Page

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
}


@pytest.mark.parametrize("answer", READ)
def test_an_answer_is_read(answer: str) -> None:
    assert parse_answer(answer) == READ[answer]


REFUSED = {
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
    'do(action="Click", element="7") do(action="Click", element="8")': "expected one call",
    'do(action="Click", element="7", colour="red")': "'colour'",
    'do(action="Click", action="Hover", element="7")': "given twice",
    "__import__('os')": "expected do(…) or exit(…)",
    "do(action=open('x'))": "expected a quoted text",
    "exit('a', 'b')": "expected at most message",
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
