"""The command line. Exit codes: 0 done, 1 failed, 2 usage, 3 replay diverged.

A command is a function of a module here; each module has its own `app`, and `COMMANDS` is the whole assembly. Every command
takes `--json`, shows an example in its help, and works without a terminal. A module is imported when its command is asked
for, and what is slow to import (torch) by the command that needs it. What goes wrong in a way we know is one message on
stderr; a traceback is a fault of ours.
"""

import errno
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

import structlog
import typer
from typer.core import TyperGroup

from app.interrupts import INTERRUPTED
from core.errors import HindcastError
from core.printable import printable

COMMANDS = {
    "start": "start",
    "join": "join",
    "watch": "watch",
    "page": "page",
    "doctor": "doctor",
    "run": "run",
    "ctl": "ctl",
    "episode": "episode",
    "task": "task",
    "curriculum": "curriculum",
    "policy": "policy",
    "model": "model",
    "lineage": "lineage",
    "log": "log",
    "broker": "broker",
    "archive": "archive",
    "import": "importing",
    "export": "export",
    "attach": "attach",
    "consumer": "consumer",
    "alerts": "alerts",
    "eval": "evaluate",
    "record": "record",
    "login": "login",
    "demonstrations": "demonstrations",
    "verify": "verify",
    "audit": "audit",
    "rebuild": "rebuild",
    "rejudge": "rejudge",
    "judge": "judge",
    "orm": "orm",
    "relabel": "relabel",
    "replay": "replay",
    "repair": "repair",
    "fork": "fork",
    "config": "config",
    "train": "train",
    "size": "size",
    "bench": "bench",
}
"""The first word of a command -> the module that has it, in the order of the help."""


REFUSALS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENOSPC, errno.EDQUOT)
"""What the system says of a place that a user named and that is not as it should be."""


class _Loading(Mapping[str, Any]):
    """Commands by name. A module is imported once its command is asked for: most need neither browser nor database."""

    def __getitem__(self, name: str) -> Any:
        """The command, of the type that typer makes."""
        whole = typer.Typer(add_completion=False, rich_markup_mode=None)
        whole.add_typer(import_module(f"app.cli.{COMMANDS[name]}").app)
        return typer.main.get_group(whole).commands[name]

    def __contains__(self, name: object) -> bool:
        return name in COMMANDS

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class _Commands(TyperGroup):
    """All of `COMMANDS`."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Loading()  # type: ignore[assignment]  # nothing is ever added to it


app = typer.Typer(
    name="hindcast",
    cls=_Commands,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def hindcast() -> None:
    """Train language-model web agents; every run can be replayed. `hindcast start` begins one."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and leave with its exit code."""
    factory = structlog.PrintLoggerFactory(sys.stderr)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.KeyValueRenderer(key_order=["event"]),
        ],
        logger_factory=factory,
        wrapper_class=structlog.make_filtering_bound_logger("warning"),
    )
    try:
        app(arguments, prog_name="hindcast")
    except HindcastError as error:
        leave(error)
    except BaseExceptionGroup as group:
        leave(first_of_ours(group) or group)
    except OSError as error:
        if error.errno not in REFUSALS:
            raise
        place = "" if error.filename is None else f" {error.filename}:"
        sys.stderr.write(f"{printable(f'cannot go on:{place} {error.strerror}')}\n")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def leave(error: BaseException) -> None:
    """Say what went wrong and leave with the code that it stands for; raise what is not ours."""
    if not isinstance(error, HindcastError):
        raise error
    sys.stderr.write(f"{printable(str(error))}\n")
    sys.exit(error.exit_code)


def first_of_ours(group: BaseExceptionGroup[BaseException]) -> HindcastError | None:
    """The first error meant for a user among those of a task group."""
    for error in group.exceptions:
        found = first_of_ours(error) if isinstance(error, BaseExceptionGroup) else error
        if isinstance(found, HindcastError):
            return found
    return None
