"""Command groups that suggest the nearest name for an unknown command or value."""

import re
from typing import Any

import typer
from typer.core import TyperGroup

from hindcast.core.text.nearest import advice, nearest

CHOICE = re.compile(r"^(?:Value error, )?'(?P<given>.*)' is not one of (?P<known>'.*')\.?$", re.DOTALL)
"""The parser's message about a value that an option does not accept."""
QUOTED = re.compile(r"'([^']*)'")


class SuggestingGroup(TyperGroup):
    """A command group that refuses unknown commands and values with the nearest known one."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Refuse an unknown command with the nearest one; see the base class."""
        word = args[0] if args else ""
        if word and not word.startswith("-") and self.get_command(ctx, word) is None:
            ctx.fail(f"No such command {word!r}; {advice(word, self.commands)}.")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Add the nearest value to an error about an unknown one; see the base class."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = with_nearest(error.message)
            raise


def with_nearest(message: str) -> str:
    """The parser's message about a value, with the nearest known value added.

    >>> with_nearest("'csv' is not one of 'parquet', 'jsonl'.")
    "'csv' is not one of 'parquet', 'jsonl'; the nearest is parquet."
    """
    found = CHOICE.match(message)
    if found is None:
        return message
    near = nearest(found["given"], QUOTED.findall(found["known"]))
    said = f"{found['given']!r} is not one of {found['known']}"
    return f"{said}; the nearest is {near[0]}." if near else f"{said}."


def suggest_in(app: typer.Typer) -> None:
    """Make all groups of an application suggest. A group with its own class must be a `SuggestingGroup`."""
    own = app.info.cls
    if not (isinstance(own, type) and issubclass(own, SuggestingGroup)):
        app.info.cls = SuggestingGroup
    for inner in app.registered_groups:
        if inner.typer_instance is not None:
            suggest_in(inner.typer_instance)
