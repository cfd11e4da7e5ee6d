"""Early stop: when an episode ends since its agent repeats itself or answers what is no action.

The rules are `early_stop` of the released runners. THUDM/VisualAgentBench (VAB-WebArena-Lite, which WebRL and WebAgent-R1 use)
compares whole answers; web-arena-x/webarena compares actions (`is_equivalent`). Their thresholds stand in docs/webarena.md.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from hindcast.core.domain.action import Action

Compared = Literal["answer", "action"]
"""What of two steps is compared."""
StopReason = Literal["unparsable", "repeated"]

_ON_AN_ELEMENT = {"Click": "Click", "Hover": "Hover", "Type": "Type", "Search": "Type"}
"""Actions that are equal where their kind and element are, whatever they type. `Search` types and presses Enter, which is
WebArena's action `type`, too."""


class Given(NamedTuple):
    """What one step was given."""

    answer: str
    action: Action | None
    """None: the answer is no action."""


def stop_reason(
    steps: Sequence[Given], *, unparsable: int, repeated: int, compared: Compared
) -> StopReason | None:
    """Why an episode of these steps ends; None: it goes on.

    `unparsable`: so many answers in a row are no action; `repeated`: so many steps are equal to the last one, in a row, but in
    the whole episode where actions are compared and the last one types. 0 switches a rule off.
    """
    if unparsable and len(steps) >= unparsable and all(one.action is None for one in steps[-unparsable:]):
        return "unparsable"
    if not repeated or len(steps) < repeated:
        return None
    last = steps[-1]
    if compared == "answer":
        return "repeated" if all(one.answer == last.answer for one in steps[-repeated:]) else None
    types = last.action is not None and _ON_AN_ELEMENT.get(last.action.name) == "Type"
    looked_at = steps if types else steps[-repeated:]
    equal = sum(is_equivalent(one.action, last.action) for one in looked_at)
    return "repeated" if equal >= repeated else None


def is_equivalent(one: Action | None, other: Action | None) -> bool:
    """Whether WebArena takes two actions for the same; None is an answer that is no action."""
    if one is None or other is None:
        return one is other
    kind = _ON_AN_ELEMENT.get(one.name)
    if kind is None:
        return one == other
    return kind == _ON_AN_ELEMENT.get(other.name) and one.element == other.element
