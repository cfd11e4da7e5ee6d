"""Suggestions for names that are not known."""

import pytest

from core.nearest import advice, nearest
from events.registry import BY_NAME
from learner.recipes import recipe_names


@pytest.mark.parametrize(
    ("name", "known", "found"),
    [
        ("grpo", recipe_names(), "mgrpo"),
        ("MGRPO", recipe_names(), "mgrpo"),
        ("step.tken", BY_NAME, "step.taken"),
        ("leger", ["ledger", "prepare"], "ledger"),
    ],
)
def test_a_name_with_a_slip_finds_the_one_meant(name: str, known: list[str], found: str) -> None:
    assert nearest(name, known) == [found]
    assert advice(name, known).startswith(f"the nearest is {found}")


def test_nothing_alike_lists_what_there_is_and_a_long_list_is_cut() -> None:
    names = [f"word{number:02}" for number in range(30)]
    assert nearest("", names) == nearest("!?", names) == []
    assert advice("!?", names[:3]) == "there are: word00, word01, word02"
    assert advice("!?", names).endswith("word19 and 10 more")
    assert advice("!?", []) == "there are: none"
    assert advice("wrd07", names) == "the nearest is word07"
