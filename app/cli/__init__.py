"""The command line. Exit codes: 0 done, 1 failed, 2 usage, 3 replay diverged, 4 a judge or a relabeler does not answer.

A command is a function of a module here; each module has its own `app`, and `COMMANDS` lists them all. Every command takes
`--json`, shows an example in its help, and works without a terminal. A command's module is imported when the command is
called, and slow libraries (torch) only by the command that needs them. A known error is one message on stderr; a traceback
is a defect of Hindcast.
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

from hindcast.app.cli.options import with_common_options
from hindcast.app.cli.suggestions import SuggestingGroup, suggest_in
from hindcast.app.revision import code_revision
from hindcast.app.system.home import close_home, home_folder, is_open, restrict_new_files
from hindcast.app.system.interrupts import ending_in_order
from hindcast.core.errors import HindcastError, SettingsError
from hindcast.core.fast_import import loading
from hindcast.core.text.printable import printable


class Command(NamedTuple):
    """A command or command group."""

    module: str
    """Module of `app.cli` that holds the command."""
    summary: str
    """Its line in the list of all commands, at most `SUMMARY` characters; its own help is its docstring."""


SUMMARY = 60
"""Characters of a summary: the longest name and a summary fit into a terminal line of 80."""

COMMANDS = {
    "start": Command("start", "Start or resume a run and show its progress."),
    "join": Command("join", "Take part in a run from another machine."),
    "watch": Command("watch", "Watch a running run in the terminal."),
    "page": Command("watch", "Serve the web page of this home's runs."),
    "doctor": Command("doctor", "Check every part that a run needs."),
    "run": Command("run", "Runs of this home: list, show, compare."),
    "ctl": Command("ctl", "Control a run: pause, resume, drain, cancel, settings."),
    "episode": Command("episode", "Episodes: attempts at tasks, step by step."),
    "task": Command("task", "Tasks: list, select, solve."),
    "curriculum": Command("task", "The curriculum: phases and their generated tasks."),
    "policy": Command("run", "Policy versions: exact weights."),
    "model": Command("doctor", "Check a model folder before it becomes a policy."),
    "lineage": Command("lineage", "Trace what something came from and what it led to."),
    "log": Command("log", "The event log of a run: tail, show, grep, stats, resize."),
    "broker": Command("join", "Set up a broker that you run yourself."),
    "archive": Command("archive", "Write a run into files, readable without a broker."),
    "import": Command("archive", "Import an archived run into this home."),
    "export": Command("export", "Export a run in a format of other tools."),
    "attach": Command("attach", "Attach your own consumer to a run."),
    "consumer": Command("attach", "List consumers of a run's log and their lag."),
    "alerts": Command("attach", "Watch a run and report problems."),
    "eval": Command("evaluate", "Measure success on unseen tasks, with a 95 % interval."),
    "record": Command("demonstrations", "Record a demonstration in the browser."),
    "login": Command("demonstrations", "Log in to a site once, for the browsers of runs."),
    "demonstrations": Command("demonstrations", "Import demonstrations from files."),
    "verify": Command("verify", "Recompute a run's updates from its log, bit for bit."),
    "audit": Command("audit", "Check every event and blob with independent code."),
    "rebuild": Command("audit", "Rebuild the read model from the log and compare."),
    "rejudge": Command("rejudge", "Judge a run's stored evidence again."),
    "judge": Command("accuracy", "Judges: how often they are right."),
    "orm": Command("accuracy", "The outcome reward model: the judge that a run trains."),
    "relabel": Command("accuracy", "Relabelers: the goals that episodes did achieve."),
    "replay": Command("replay", "Play recorded episodes again, and compare."),
    "repair": Command("archive", "Make a damaged log whole from the run's archive."),
    "fork": Command("fork", "Make a new run whose log begins as another's."),
    "plugin": Command("doctor", "Plugins: what other packages bring, and if it works."),
    "config": Command("config", "Settings and where each came from."),
    "size": Command("config", "Memory, GPUs, throughput and disk, by arithmetic."),
    "bench": Command("bench", "Our figures beside those of peers, side by side."),
}
"""In the order of the help, which uses only this table: importing every module for it took seconds."""


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
"""Errors of the operating system about a place that the user named."""


PREPARED = "prepared"
"""Attribute that marks a command with the common options, so that they are added once."""


class _Loading(Mapping[str, Any]):
    """Commands by name. Imports a module when its command is called: most need neither browser nor database."""

    def __getitem__(self, name: str) -> Any:
        """The command, as typer's command object."""
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
    """The group of all `COMMANDS`."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Loading()  # type: ignore[assignment]  # nothing is ever added to it

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of all commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.summary) for name, command in COMMANDS.items()])


def _prepare(group: typer.Typer) -> None:
    """Add the common options to every command of a group and of its subgroups."""
    for command in group.registered_commands:
        if command.callback is not None and not hasattr(command.callback, PREPARED):
            command.callback = with_common_options(command.callback)
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
    """Train language-model web agents with replayable runs. `hindcast start` starts one."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit with its code."""
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
        sys.stderr.write(f"{printable(f'cannot continue:{place} {error.strerror}')}\n")
        sys.exit(1)


def leave(error: BaseException) -> None:
    """Print a known error and exit with its code; raise any other error."""
    if not isinstance(error, HindcastError):
        raise error
    sys.stderr.write(f"{printable(str(error))}\n")
    sys.exit(error.exit_code)


def first_of_ours(group: BaseExceptionGroup[BaseException]) -> HindcastError | None:
    """The first error of a task group that is meant for a user."""
    for error in group.exceptions:
        found = first_of_ours(error) if isinstance(error, BaseExceptionGroup) else error
        if isinstance(found, HindcastError):
            return found
    return None
