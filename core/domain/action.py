"""The action space: names and arguments of all actions, shared by parser, executor and prompts."""

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
