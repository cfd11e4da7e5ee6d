"""The action space: names and arguments of all actions, shared by parser, executor and prompts; and early stop.

Early stop ends an episode whose agent repeats itself or gives unparsable answers, by `early_stop` of the released runners:
THUDM/VisualAgentBench (VAB-WebArena-Lite, used by WebRL and WebAgent-R1) compares whole answers; web-arena-x/webarena compares
actions (`is_equivalent`). docs/webarena.md lists their thresholds.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec


class Action(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One parsed action."""

    name: str
    """A key of `ACTIONS`."""
    element: int | None = None
    """The element's number in the observation."""
    argument: str | None = None
    """Text to type, option to select, key to press, address or exit message."""


class Arguments(msgspec.Struct, frozen=True):
    """Which arguments an action takes: `required`, `optional` or `none`."""

    element: str = "none"
    argument: str = "none"


ACTIONS: dict[str, Arguments] = {
    "Click": Arguments(element="required"),
    "Right Click": Arguments(element="required"),
    "Hover": Arguments(element="required"),
    "Type": Arguments(element="required", argument="required"),
    "Search": Arguments(element="required", argument="required"),
    "Press": Arguments(element="optional", argument="required"),
    "Scroll Up": Arguments(),
    "Scroll Down": Arguments(),
    "Select Dropdown Option": Arguments(element="required", argument="required"),
    "Wait": Arguments(),
    "New_tab": Arguments(argument="optional"),
    "Tab_focus": Arguments(argument="required"),
    "Close_tab": Arguments(),
    "Goto": Arguments(argument="required"),
    "Go_backward": Arguments(),
    "Go_forward": Arguments(),
    "exit": Arguments(argument="optional"),
}
"""The full action set of WebRL's paper (arXiv 2411.02337). `Search` types and then presses Enter."""


class ParseFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Why an answer is not an action. A parse failure is the result of a step, never an exception."""

    reason: str
    """What the parser expected and what it found."""


Compared = Literal["answer", "action"]
"""Which part of two steps is compared."""
StopReason = Literal["unparsable", "repeated"]

_ON_AN_ELEMENT = {"Click": "Click", "Hover": "Hover", "Type": "Type", "Search": "Type"}
"""Actions that are equal if their kind and element are equal, whatever they type. `Search` types and presses Enter, which
in WebArena is the action `type`, too."""


class Given(NamedTuple):
    """One step's answer and the action parsed from it."""

    answer: str
    action: Action | None
    """None if the answer is unparsable."""


def stop_reason(
    steps: Sequence[Given], *, unparsable: int, repeated: int, compared: Compared
) -> StopReason | None:
    """Return why an episode with these steps stops early; None if it continues.

    Args:
        steps: the episode so far.
        unparsable: number of consecutive unparsable answers that stop it; 0 disables the rule.
        repeated: number of steps equal to the last one that stop it; 0 disables the rule. Only consecutive steps count,
            unless actions are compared and the last one types: then all steps of the episode count.
        compared: what makes two steps equal.
    """
    if unparsable and len(steps) >= unparsable and all(step.action is None for step in steps[-unparsable:]):
        return "unparsable"
    if not repeated or len(steps) < repeated:
        return None
    last = steps[-1]
    if compared == "answer":
        return "repeated" if all(step.answer == last.answer for step in steps[-repeated:]) else None
    types = last.action is not None and _ON_AN_ELEMENT.get(last.action.name) == "Type"
    looked_at = steps if types else steps[-repeated:]
    equal = sum(is_equivalent(step.action, last.action) for step in looked_at)
    return "repeated" if equal >= repeated else None


def is_equivalent(first: Action | None, second: Action | None) -> bool:
    """Whether WebArena treats two actions as equal. None is an unparsable answer."""
    if first is None or second is None:
        return first is second
    kind = _ON_AN_ELEMENT.get(first.name)
    if kind is None:
        return first == second
    return kind == _ON_AN_ELEMENT.get(second.name) and first.element == second.element
