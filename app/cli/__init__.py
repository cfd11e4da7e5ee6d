"""The command line. Exit codes: 0 done, 1 failed, 2 usage, 3 replay diverged.

A command is a function of a module here; each module has its own `app`, and `COMMANDS` is the whole assembly. Every command
takes `--json`, shows an example in its help, and works without a terminal. A module is imported when its command is asked
for, and what is slow to import (torch) by the command that needs it. What goes wrong in a way we know is one message on
stderr; a traceback is a fault of ours.
"""

import errno
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any, NamedTuple

import structlog
import typer

from hindcast.app.cli.options import with_checked_values, with_run_option
from hindcast.app.cli.suggestions import SuggestingGroup, suggest_in
from hindcast.app.revision import code_revision
from hindcast.app.system.home import home_folder
from hindcast.app.system.interrupts import ending_in_order
from hindcast.app.system.private_home import close_home, is_open, restrict_new_files
from hindcast.core.errors import HindcastError, SettingsError
from hindcast.core.fast_import import loading
from hindcast.core.text.printable import printable


class Command(NamedTuple):
    """A first word of the command line."""

    module: str
    """Of `app.cli`: what has the command."""
    summary: str
    """Its line in the list of all, at most `SUMMARY` characters; what it says of itself is its own docstring."""


SUMMARY = 60
"""Characters: the longest name and one of these fit a line of a terminal of 80."""

COMMANDS = {
    "start": Command("start", "Start a run, or go on with one, and say what happens."),
    "join": Command("join", "Take part in a run from another machine."),
    "watch": Command("watch", "Look at a run while it goes, in the terminal."),
    "page": Command("page", "Serve the web page of this home's runs."),
    "doctor": Command("doctor", "Try every part that a run needs."),
    "run": Command("run", "Runs of this home: list, show, compare."),
    "ctl": Command("ctl", "Ask a run to do something: pause, other settings."),
    "episode": Command("episode", "Episodes: attempts at tasks, step by step."),
    "task": Command("task", "Tasks: what episodes attempt."),
    "curriculum": Command("curriculum", "The curriculum: phases and the tasks made for them."),
    "policy": Command("policy", "Policy versions: exact weights."),
    "model": Command("model", "Models in folders, before they are policies."),
    "lineage": Command("lineage", "What something came from, and what came of it."),
    "log": Command("log", "The log: every event of a run, in order."),
    "broker": Command("broker", "A broker that others run."),
    "archive": Command("archive", "A run in files, readable without a broker."),
    "import": Command("import_run", "Bring an archived run into this home."),
    "export": Command("export", "Write a run in a format that other tools read."),
    "attach": Command("attach", "Run a consumer of your own beside a run."),
    "consumer": Command("consumer", "Who reads a run's log, and how far each has come."),
    "alerts": Command("alerts", "Watch a run and say when something goes wrong."),
    "eval": Command("evaluate", "Success on unseen tasks, with a 95 % interval."),
    "record": Command("record", "Take down what a person does as a demonstration."),
    "login": Command("login", "Log in to a site once, for the browsers of runs."),
    "demonstrations": Command("demonstrations", "Demonstrations that were made elsewhere."),
    "verify": Command("verify", "Recompute a run's updates from its log, bit for bit."),
    "audit": Command("audit", "A second opinion on every event and every blob."),
    "rebuild": Command("rebuild", "Fold the log again and compare the read model."),
    "rejudge": Command("rejudge", "Judge a run's stored evidence again."),
    "judge": Command("judge", "Judges: how often they are right."),
    "orm": Command("orm", "The outcome reward model: the judge that a run trains."),
    "relabel": Command("relabel", "Relabelers: the goals that episodes did achieve."),
    "replay": Command("replay", "Play recorded episodes again, and compare."),
    "repair": Command("repair", "Make a damaged log whole from the run's archive."),
    "fork": Command("fork", "Make a new run whose log begins as another's."),
    "plugin": Command("plugin", "Plugins: what other packages bring, and if it works."),
    "config": Command("config", "Settings and where each came from."),
    "size": Command("size", "Memory, GPUs, throughput and disk, by arithmetic."),
    "bench": Command("bench", "Our figures beside those of peers, side by side."),
}
"""In the order of the help, which is made from here alone: to import every module for it took seconds."""


REFUSALS = (
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ENOENT,
    errno.EEXIST,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENOSPC,
    errno.EDQUOT,
)
"""What the system says of a place that a user named and that is not as it should be."""


PREPARED = "prepared"
"""Attribute of a command that was given what all commands have: a second look at it changes nothing."""


class _Loading(Mapping[str, Any]):
    """Commands by name. A module is imported once its command is asked for: most need neither browser nor database."""

    def __getitem__(self, name: str) -> Any:
        """The command, of the type that typer makes."""
        whole = typer.Typer(add_completion=False, rich_markup_mode=None)
        with loading():
            module = import_module(f"hindcast.app.cli.{COMMANDS[name].module}")
        _prepare(module.app)
        suggest_in(module.app)
        whole.add_typer(module.app)
        return typer.main.get_group(whole).commands[name]

    def __contains__(self, name: object) -> bool:
        return name in COMMANDS

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class _Commands(SuggestingGroup):
    """All of `COMMANDS`."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Loading()  # type: ignore[assignment]  # nothing is ever added to it

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The list of all commands, of which none is loaded."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.summary) for name, command in COMMANDS.items()])


def _prepare(group: typer.Typer) -> None:
    """Give every command of a group, and of the groups in it, what all commands have."""
    for command in group.registered_commands:
        if command.callback is not None and not hasattr(command.callback, PREPARED):
            command.callback = with_run_option(with_checked_values(command.callback))
            setattr(command.callback, PREPARED, True)
    for inner in group.registered_groups:
        if inner.typer_instance is not None:
            _prepare(inner.typer_instance)


app = typer.Typer(
    name="hindcast",
    cls=_Commands,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hindcast {version('hindcast')} ({code_revision()})")
        raise typer.Exit


@app.callback()
def hindcast(
    version_wanted: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Version and revision.")
    ] = False,
) -> None:
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
    with ending_in_order():
        with suppress(SettingsError, OSError, RuntimeError):  # the command says what is wrong with its home
            home = home_folder()
            restrict_new_files(home)
            if is_open(home):
                close_home(home)
        _run(arguments)


def _run(arguments: Sequence[str] | None) -> None:
    try:
        app(arguments, prog_name="hindcast")
    except HindcastError as error:
        leave(error)
    except BaseExceptionGroup as group:
        leave(first_of_ours(group) or group)
    except OSError as error:
        if error.errno not in REFUSALS or (error.errno == errno.ENOENT and error.filename is None):
            raise
        place = "" if error.filename is None else f" {error.filename}:"
        sys.stderr.write(f"{printable(f'cannot go on:{place} {error.strerror}')}\n")
        sys.exit(1)


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
