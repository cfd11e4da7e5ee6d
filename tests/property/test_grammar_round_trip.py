"""Whatever a policy answers, parsing gives a value; and what demonstrations say is read back as it was meant."""

from typing import get_args

from hypothesis import assume, given
from hypothesis import strategies as st

from hindcast.core.domain.action import ACTIONS, Action, ParseFailure
from hindcast.core.domain.observation import Node, Page
from hindcast.core.grammar.answer_parser import (
    ELEMENT_TEXT_CHARS,
    Dialect,
    format_answer,
    parse_answer,
    parse_form,
    put_in_form,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@st.composite
def actions(draw: st.DrawFn) -> Action:
    name = draw(st.sampled_from(sorted(ACTIONS)))
    takes = ACTIONS[name]
    number = st.integers(0, 999_999)
    element = {"required": number, "optional": st.none() | number, "none": st.none()}[takes.element]
    argument = {"required": TEXT, "optional": st.none() | TEXT, "none": st.none()}[takes.argument]
    return Action(name=name, element=draw(element), argument=draw(argument))


@st.composite
def pages(draw: st.DrawFn) -> Page:
    texts = draw(st.lists(TEXT, max_size=4))
    nodes = tuple(Node(kind="link", tag="a", text=text, id=at + 1) for at, text in enumerate(texts))
    return Page(url="", title="", nodes=nodes)


DIALECTS = st.sampled_from(get_args(Dialect))


@given(actions(), pages(), DIALECTS)
def test_a_formatted_action_is_read_back_unchanged(action: Action, page: Page, dialect: Dialect) -> None:
    assert parse_answer(format_answer(action, page, dialect)) == action


@given(actions(), pages(), TEXT, DIALECTS)
def test_a_thought_changes_nothing_of_the_action(
    action: Action, page: Page, thought: str, dialect: Dialect
) -> None:
    answer = put_in_form(format_answer(action, page, dialect), "thinking", thought=thought)
    assert parse_form(answer, "thinking") == action


@given(actions(), pages(), DIALECTS)
def test_a_formatted_action_names_its_element_in_one_short_comment_line(
    action: Action, page: Page, dialect: Dialect
) -> None:
    lines = format_answer(action, page, dialect).split("\n")
    if action.name == "exit":
        return
    assert len(lines) == (1 if action.element is None else 2)
    if action.element is not None:
        assert lines[0].startswith("# Element: ")
        assert lines[0].endswith(f"[{action.element}]")
        assert len(lines[0]) <= len("# Element: ") + ELEMENT_TEXT_CHARS + len(f" [{action.element}]")


@given(pages(), st.data())
def test_a_message_taken_from_the_page_is_read_back_after_the_line_it_stands_in(
    page: Page, data: st.DataObject
) -> None:
    texts = [" ".join(node.text.split()) for node in page.nodes if node.text.split()]
    assume(texts)
    message = data.draw(st.sampled_from(texts).flatmap(lambda text: st.sampled_from(text.split())))
    answer = format_answer(Action(name="exit", argument=message), page)
    assert parse_answer(answer) == Action(name="exit", argument=message)
    note, _, call = answer.rpartition("\n")
    assert call.startswith("exit(")
    assert "\n" not in note
    assert not note or (note.startswith("# Note: ") and message in note)


PIECES = st.sampled_from(
    ["do", "exit", "click", "fill", "scroll", "(", ")", "=", ",", '"', "'", "\\", "\n", "#", "action", "element",
     "argument", "Click", "Type", "7", "[7]", "[", "]", "-1", "1e9", "True", " ", "```", "\u2028", "٣", "__import__('os')"]
)  # fmt: skip


@given(st.text(max_size=200) | st.lists(PIECES, max_size=20).map("".join))
def test_parsing_never_raises_and_gives_an_action_of_the_table_or_a_reason(text: str) -> None:
    parsed = parse_answer(text)
    if isinstance(parsed, ParseFailure):
        assert parsed.reason
        return
    takes = ACTIONS[parsed.name]
    for value, need in ((parsed.element, takes.element), (parsed.argument, takes.argument)):
        assert value is None or need != "none"
        assert value is not None or need != "required"


@given(actions(), pages(), st.integers(min_value=0), DIALECTS)
def test_an_answer_cut_short_is_never_read_as_another_action(
    action: Action, page: Page, cut: int, dialect: Dialect
) -> None:
    answer = format_answer(action, page, dialect)
    parsed = parse_answer(answer[: cut % len(answer)])
    assert isinstance(parsed, ParseFailure) or parsed == action
