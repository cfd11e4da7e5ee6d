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
    """Line in the list of all commands, at most `SUMMARY` characters. The docstring is the command's own help."""


SUMMARY = 60
"""Maximum number of characters of a summary, so that the longest name and its summary fit into 80 columns."""

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
    "policy": Command("policy", "Policy versions: list, export as a model folder, serve."),
    "model": Command("doctor", "Check a model folder before it becomes a policy."),
    "lineage": Command("lineage", "Trace what something came from and what it led to."),
    "log": Command("log", "The event log of a run: tail, show, grep, stats, resize."),
    "broker": Command("join", "Set up a broker that you run yourself."),
    "archive": Command("archive", "Write a run into files, readable without a broker."),
    "import": Command("imports", "Import a run: an archive, or another system's log."),
    "export": Command("export", "Export a run in a format of other tools."),
    "attach": Command("attach", "Attach your own consumer to a run."),
    "consumer": Command("attach", "List consumers of a run's log and their lag."),
    "alerts": Command("attach", "Watch a run and report problems."),
    "eval": Command("evaluate", "Measure success on unseen tasks, with a 95 % interval."),
    "record": Command("demonstrations", "Record a demonstration in the browser."),
    "login": Command("demonstrations", "Log in to a site and store the login for tasks."),
    "demonstrations": Command("demonstrations", "Import demonstrations from files."),
    "verify": Command("verify", "Recompute a run's updates from its log, bit for bit."),
    "prove": Command("prove", "Write a policy, its log and a signed proof for others."),
    "check-proof": Command("prove", "Check a proof: draw updates and recompute them."),
    "audit": Command("audit", "Check every event and blob with independent code."),
    "sql": Command("sql", "Ask a run in SQL."),
    "rebuild": Command("audit", "Rebuild the read model from the log and compare."),
    "rejudge": Command("rejudge", "Judge a run's stored evidence again."),
    "judge": Command("accuracy", "Measure the accuracy of judges."),
    "orm": Command("accuracy", "Measure the accuracy of the outcome reward model."),
    "relabel": Command("accuracy", "Measure the accuracy of relabelers."),
    "replay": Command("replay", "Replay recorded episodes and compare with the record."),
    "repair": Command("archive", "Repair a damaged log."),
    "fork": Command("fork", "Create a run that continues another run's log."),
    "branch": Command("branch", "Continue an episode from its steps: where did it go wrong?"),
    "why": Command("why", "Tell which episodes, steps and tokens moved the policy."),
    "without": Command("without", "Compute updates again as if data had not been there."),
    "plugin": Command("doctor", "List and check the plugins of installed packages."),
    "config": Command("config", "Show and check settings and their sources."),
    "size": Command("size", "Estimate needs; write settings and launcher files."),
    "bench": Command("bench", "Benchmarks against other systems."),
}
"""In the order of the help. The help uses only this table, because importing every module would take seconds."""


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
"""Errors of the operating system about a path that the user gave; `main` prints them without a traceback."""


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
        self.commands = _Loading()  # type: ignore[assignment]  # nothing is added to it

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
        with suppress(
            SettingsError, OSError, RuntimeError
        ):  # the command itself reports an invalid home folder
            home = home_folder()
            restrict_new_files(home)
            if is_open(home):
                close_home(home)
        _run(arguments)


def _run(arguments: Sequence[str] | None) -> None:
    try:
        app(arguments, prog_name="hindcast")
    except HindcastError as error:
        exit_with_error(error)
    except BaseExceptionGroup as group:
        exit_with_error(find_known_error(group) or group)
    except OSError as error:
        if error.errno not in REFUSALS or (error.errno == errno.ENOENT and error.filename is None):
            raise
        place = "" if error.filename is None else f" {error.filename}:"
        sys.stderr.write(f"{printable(f'cannot continue:{place} {error.strerror}')}\n")
        sys.exit(1)


def exit_with_error(error: BaseException) -> None:
    """Print a known error and exit with its code; raise any other error."""
    if not isinstance(error, HindcastError):
        raise error
    sys.stderr.write(f"{printable(str(error))}\n")
    sys.exit(error.exit_code)


def find_known_error(group: BaseExceptionGroup[BaseException]) -> HindcastError | None:
    """Find the first HindcastError of a task group; None if there is none."""
    for error in group.exceptions:
        found = find_known_error(error) if isinstance(error, BaseExceptionGroup) else error
        if isinstance(found, HindcastError):
            return found
    return None
