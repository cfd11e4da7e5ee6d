"""Converts actions to function calls of trajectory formats, such as `click(element=7)`, and back."""

from typing import Any

from hindcast.core.domain.action import ACTIONS, Action


def function_name(action: str) -> str:
    """Return an action's name in the form that function calls allow.

    >>> function_name("Select Dropdown Option")
    'select_dropdown_option'
    """
    return action.lower().replace(" ", "_")


_NAMES = {function_name(name): name for name in ACTIONS}


def arguments_of(action: Action) -> dict[str, Any]:
    """Arguments of the function call."""
    given = {"element": action.element, "argument": action.argument}
    return {name: value for name, value in given.items() if value is not None}


def action_of(function: str, arguments: dict[str, Any]) -> Action:
    """Convert a function call to an action. Raises ValueError with a readable reason."""
    name = _NAMES.get(function)
    if name is None:
        raise ValueError(f"there is no action {function!r}; there are: {', '.join(_NAMES)}")
    unknown = arguments.keys() - {"element", "argument"}
    if unknown:
        raise ValueError(f"{function} takes element and argument, not {min(unknown)!r}")
    element, argument = arguments.get("element"), arguments.get("argument")
    if element is not None and (isinstance(element, bool) or not isinstance(element, int)):
        raise ValueError(f"element is a number on the page, not {element!r}")
    if argument is not None and not isinstance(argument, str):
        raise ValueError(f"argument is text, not {argument!r}")
    return Action(name=name, element=element, argument=argument)


def definitions() -> list[dict[str, Any]]:
    """Definitions of all actions in the format of OpenAI's function calls."""
    return [_definition(name) for name in ACTIONS]


def _definition(name: str) -> dict[str, Any]:
    takes = ACTIONS[name]
    properties: dict[str, Any] = {}
    if takes.element != "none":
        properties["element"] = {"type": "integer", "description": "number of the element on the page"}
    if takes.argument != "none":
        properties["argument"] = {"type": "string"}
    required = [key for key in properties if getattr(takes, key) == "required"]
    return {
        "type": "function",
        "function": {
            "name": function_name(name),
            "description": name,
            "parameters": {"type": "object", "properties": properties, "required": required},
        },
    }
