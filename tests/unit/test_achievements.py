"""What the learned relabeler reads and writes: there and back, and whatever else stands in a text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hindcast.core.domain.observation import Node, Page
from hindcast.core.prompts.achievement_prompt import (
    NOTHING,
    REQUEST,
    Achievement,
    build_achievement_prompt,
    read_achievements,
    write_achievements,
)
from stories.store_walk import TOKENIZER

pytestmark = pytest.mark.torch

STEPS = 9
WORDS = st.lists(st.sampled_from(["Add", "the", "oak", "lamp:", "by", "3", "of", "$4.50"]), min_size=1).map(
    " ".join
)


@st.composite
def achievements(draw: st.DrawFn) -> Achievement:
    until = draw(st.integers(1, STEPS))
    others = draw(st.sets(st.integers(1, until)))
    return Achievement(draw(WORDS), until, tuple(sorted(others | {until})))


@given(st.lists(achievements(), max_size=4))
def test_what_is_written_is_read_back_in_the_order_of_the_steps(told: list[Achievement]) -> None:
    said = read_achievements(write_achievements(told), steps=STEPS)
    assert said.unreadable == 0
    assert list(said.achievements) == sorted(told, key=lambda one: one.until_step)


def test_nothing_achieved_has_a_word_of_its_own() -> None:
    assert write_achievements([]) == NOTHING
    assert read_achievements(f"{NOTHING}\n", steps=3) == ((), 0)


def test_relevance_is_told_per_step_up_to_the_one_that_achieved_it() -> None:
    assert Achievement("Buy it.", 4, (1, 2, 4)).relevance == (1.0, 1.0, 0.0, 1.0)


def test_lines_that_do_not_fit_the_episode_are_counted_and_left_out() -> None:
    text = "\n".join(
        (
            "by 2 of 1 2: Buy the mug.",
            "by 4 of 4: beyond the end",
            "by 2 of 1: without the step that achieved it",
            "by 2 of 2 1 2: not in order",
            "by 2 of 0 2: no step",
            "by two of 1 2: no number",
            "by 3 of 3:",
            "Buy the mug.",
        )
    )
    said = read_achievements(text, steps=3)
    assert [one.instruction for one in said.achievements] == ["Buy the mug."]
    assert said.unreadable == 7


@given(st.text("by 0123of:\n x", max_size=120), st.integers(1, 6))
def test_any_text_can_be_read(text: str, steps: int) -> None:
    for one in read_achievements(text, steps=steps).achievements:
        assert 1 <= one.until_step <= steps
        assert len(one.relevance) == one.until_step
        assert one.relevance[-1] == 1.0


def test_the_prompt_asks_instead_of_instructing_and_shows_every_answer_and_the_last_page() -> None:
    page = Page(url="", title="Cart", nodes=(Node(kind="text", tag="p", text="Total $4.50"),))
    prompt = build_achievement_prompt(TOKENIZER, answers=["first", "second"], page=page, max_tokens=400)
    text = TOKENIZER.decode(prompt.ids)
    places = [text.index(part) for part in (REQUEST, "1: first", "2: second", "page Cart", "Total $4.50")]
    assert places == sorted(places)
    assert not prompt.truncated


def test_steps_keep_their_numbers_where_early_answers_are_left_out() -> None:
    page = Page(
        url="", title="Cart", nodes=tuple(Node(kind="text", tag="p", text="lamp") for _ in range(200))
    )
    answers = [f"answer {'long ' * 9}" for _ in range(8)]
    prompt = build_achievement_prompt(TOKENIZER, answers=answers, page=page, max_tokens=300)
    text = TOKENIZER.decode(prompt.ids)
    assert prompt.truncated
    assert "1: answer" not in text
    assert all(f"{number}: answer" in text for number in (6, 7, 8))
