"""When an episode ends early: by answers that are no action, and by steps that are equal."""

from collections.abc import Sequence

import pytest

from hindcast.core.domain.action import Action, Compared, Given, StopReason, is_equivalent, stop_reason
from hindcast.core.settings.actors import ActorSettings

LOST = Given("I am lost", None)
OTHER = Given("Where am I?", None)
BUY = Given('# Element: Buy\ndo(action="Click", element="1")', Action(name="Click", element=1))
BUY_NOTED = Given('do(action="Click", element="1")', Action(name="Click", element=1))
BACK = Given("back", Action(name="Go_backward"))
TYPE_A = Given("a", Action(name="Type", element=4, argument="a"))
SEARCH_B = Given("b", Action(name="Search", element=4, argument="b"))


@pytest.mark.parametrize(
    ("steps", "compared", "reason"),
    [
        ([LOST, OTHER, LOST], "answer", "unparsable"),
        ([LOST, BUY, LOST, LOST], "answer", None),
        ([BUY, BUY, BUY], "answer", "repeated"),
        ([BUY, BUY_NOTED, BUY], "answer", None),
        ([BUY, BUY_NOTED, BUY], "action", "repeated"),
        ([BUY, BUY, BACK, BUY], "action", None),
        ([TYPE_A, BACK, SEARCH_B, BACK, TYPE_A], "action", "repeated"),
        ([TYPE_A, BACK, SEARCH_B, BACK], "action", None),
        ([TYPE_A, BACK, TYPE_A, BACK, TYPE_A], "answer", None),
        ([], "action", None),
    ],
)
def test_an_episode_ends_as_the_released_runners_end_it(
    steps: Sequence[Given], compared: Compared, reason: StopReason | None
) -> None:
    assert stop_reason(steps, unparsable=3, repeated=3, compared=compared) == reason
    assert stop_reason(steps, unparsable=0, repeated=0, compared=compared) is None


def test_one_unparsable_answer_can_end_an_episode() -> None:
    assert stop_reason([BUY, LOST], unparsable=1, repeated=0, compared="answer") == "unparsable"
    assert stop_reason([BUY], unparsable=1, repeated=0, compared="answer") is None


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (Action(name="Type", element=4, argument="a"), Action(name="Type", element=4, argument="b"), True),
        (Action(name="Type", element=4, argument="a"), Action(name="Type", element=5, argument="a"), False),
        (Action(name="Click", element=4), Action(name="Hover", element=4), False),
        (Action(name="Goto", argument="/a"), Action(name="Goto", argument="/b"), False),
        (Action(name="Scroll Up"), Action(name="Scroll Up"), True),
        (Action(name="Scroll Up"), Action(name="Scroll Down"), False),
        (None, Action(name="Wait"), False),
        (None, None, True),
    ],
)
def test_actions_are_equal_by_kind_and_element(one: Action | None, other: Action | None, equal: bool) -> None:
    assert is_equivalent(one, other) == equal


def test_settings_of_runs_from_before_the_count_mean_what_they_meant() -> None:
    found = [ActorSettings.model_validate({"ends_unparsable": value}) for value in (False, True)]
    assert [repr(one.ends_unparsable) for one in found] == ["0", "1"]
