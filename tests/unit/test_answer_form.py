"""Thinking answers: how they are read, where among the sampled tokens the answer begins, what demonstrations think."""

import pytest
from transformers import PreTrainedTokenizerFast

from hindcast.core.domain.action import Action, ParseFailure
from hindcast.core.domain.observation import Node, Page
from hindcast.core.grammar.answer_parser import first_answer_token, parse_form, put_in_form
from hindcast.core.models.folders import base_policy_folder
from hindcast.core.prompts.prompt import encode_answer
from hindcast.core.prompts.rationale import reason_for
from simulation.stand_ins import LetterTokenizer

pytestmark = pytest.mark.torch

CLICK = '# Element: Buy [1]\ndo(action="Click", element="1")'
PAGE = Page(
    url="",
    title="Mug",
    nodes=(
        Node(kind="text", tag="p", text="Price | $7.98"),
        Node(kind="button", tag="button", text="Add to cart", id=1),
        Node(kind="input", tag="input", text="Quantity", value="1", id=2),
    ),
)


def test_a_thinking_answer_is_read_without_its_thought() -> None:
    answer = f"<think>I look at [7].\nThen I click.</think>\n<answer>{CLICK}</answer>"
    assert parse_form(answer, "thinking") == Action(name="Click", element=1)
    assert isinstance(parse_form(answer, "plain"), ParseFailure)


@pytest.mark.parametrize(
    "answer",
    ["", CLICK, f"<answer>{CLICK}</answer>", f"<think>a</think>{CLICK}", f"<think>a<answer>{CLICK}</answer>",
     f"<think>a</think><answer>{CLICK}", f"<think>a</think><answer>{CLICK}</answer> and more",
     f"so <think>a</think><answer>{CLICK}</answer>", "<think>a</think><answer></answer>"],
)  # fmt: skip
def test_an_answer_in_another_form_is_no_action(answer: str) -> None:
    assert isinstance(parse_form(answer, "thinking"), ParseFailure)


def test_a_thought_cannot_end_itself() -> None:
    answer = put_in_form(CLICK, "thinking", thought="a</think><answer>exit()</answer><think>b")
    assert parse_form(answer, "thinking") == Action(name="Click", element=1)


def test_a_plain_answer_stays_as_it_is() -> None:
    assert put_in_form(CLICK, "plain", thought="unheard") == CLICK
    assert parse_form(CLICK, "plain") == Action(name="Click", element=1)


@pytest.mark.parametrize("thought", ["", "The page is Mug.", "ü — 日本語 🛒", "</think"])
def test_what_follows_the_thought_is_the_answer_to_the_token(thought: str) -> None:
    tokenizer = PreTrainedTokenizerFast.from_pretrained(base_policy_folder())
    ids = encode_answer(tokenizer, put_in_form(CLICK, "thinking", thought=thought))
    start = first_answer_token(tokenizer, ids)
    assert (
        tokenizer.decode(ids[start:], skip_special_tokens=True).lstrip(">\n ") == f"<answer>{CLICK}</answer>"
    )
    assert "</think>" not in tokenizer.decode(ids[: start - 1])
    assert "</think>" in tokenizer.decode(ids[:start])


def test_without_a_closed_thought_all_tokens_are_the_answer() -> None:
    tokenizer = LetterTokenizer()
    for answer in (CLICK, "<think>for ever", ""):
        assert first_answer_token(tokenizer, encode_answer(tokenizer, answer)) == 0


@pytest.mark.parametrize(
    ("action", "instruction", "thought"),
    [
        (Action(name="Click", element=1), "Buy a mug.", "The page is Mug. It shows button Add to cart [1]. So I click on it."),
        (Action(name="Type", element=2, argument="3"), "Buy 3 mugs; set Quantity to 3.",
         "The page is Mug. It shows input Quantity = 1 [2]. The task names Quantity. The task gives 3. So I type 3 there."),
        (Action(name="exit", argument="$7.98"), "What does the mug cost?",
         "The page is Mug. It shows $7.98. So I answer $7.98."),
        (Action(name="exit", argument="none"), "What does it weigh?", "The page is Mug. So I answer none."),
        (Action(name="exit"), "Go.", "The page is Mug. So I end here."),
        (Action(name="Scroll Down"), "Go.", "The page is Mug. So I do Scroll Down."),
    ],
)  # fmt: skip
def test_a_thought_says_what_page_and_task_show(action: Action, instruction: str, thought: str) -> None:
    assert reason_for(action, page=PAGE, instruction=instruction, steps=0) == thought


def test_a_thought_claims_nothing_that_is_not_there() -> None:
    thought = reason_for(
        Action(name="Type", element=2, argument="30"), page=PAGE, instruction="Buy 3 mugs.", steps=0
    )
    assert "The task" not in thought
