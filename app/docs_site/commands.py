"""The reference of commands, from the commands themselves."""

import inspect
from collections.abc import Iterator
from typing import Any

import typer

from hindcast.app.cli import app
from hindcast.app.docs_site.markdown import code, table


def commands() -> Iterator[tuple[str, Any]]:
    """Every command that does something, with the words that call it: `hindcast run show`."""
    yield from _below("hindcast", typer.main.get_command(app))


def _below(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield words, command
        return
    if getattr(command, "invoke_without_command", False):
        yield words, command
    for name in inner:
        yield from _below(f"{words} {name}", inner[name])


def commands_page() -> str:
    """Every command with its arguments and options."""
    parts = [
        "# Commands\n\nEvery command takes `--json` and `--help`. Exit codes: 0 done, 1 failed, 2 usage, 3 replay diverged, "
        "4 a judge or a relabeler does not answer.\n"
    ]
    for words, command in commands():
        if words == "hindcast":
            continue
        rows = [
            _row(one) for one in command.params if not getattr(one, "hidden", False) and one.name != "help"
        ]
        text = inspect.cleandoc(command.help or "")
        said, _, example = text.partition("Example: ")
        parts.append(f"## {words}\n\n{said.strip()}\n")
        if example:
            parts.append(f"```sh\n{example.strip()}\n```\n")
        if rows:
            parts.append(table(("", "default", "meaning"), rows))
    return "\n".join(parts)


def _row(parameter: Any) -> tuple[str, str, str]:
    if parameter.param_type_name == "argument":
        name = code(parameter.metavar or parameter.name.upper())
    else:
        name = " ".join(code(one) for one in (*parameter.opts, *parameter.secondary_opts))
    given = parameter.default
    shown = "" if given is None or given is False or given == () or callable(given) else str(given)
    return name, code(shown), getattr(parameter, "help", "") or ""
