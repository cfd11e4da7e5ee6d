"""The command line. Exit codes: 0 done, 1 failed, 2 usage, 3 replay diverged.

A command is a function of a module here; each module has its own `app`, and `PARTS` is the whole assembly. Every command
takes `--json`, shows an example in its help, and works without a terminal. What is slow to import (torch) is imported
by the command that needs it. What goes wrong in a way we know is one
message on stderr; a traceback is a fault of ours.
"""

import sys
from collections.abc import Sequence

import structlog
import typer

from app.cli import (
    archive,
    attach,
    audit,
    bench,
    config,
    consumer,
    doctor,
    episode,
    evaluate,
    fork,
    importing,
    lineage,
    log,
    policy,
    rebuild,
    rejudge,
    repair,
    replay,
    run,
    start,
    task,
    train,
    verify,
    watch,
)
from app.interrupts import INTERRUPTED
from core.errors import HindcastError

PARTS: tuple[typer.Typer, ...] = (
    start.app,
    watch.app,
    doctor.app,
    run.app,
    episode.app,
    task.app,
    policy.app,
    lineage.app,
    log.app,
    archive.app,
    importing.app,
    attach.app,
    consumer.app,
    evaluate.app,
    verify.app,
    audit.app,
    rebuild.app,
    rejudge.app,
    replay.app,
    repair.app,
    fork.app,
    config.app,
    train.app,
    bench.app,
)
"""In the order of the help."""

app = typer.Typer(
    name="hindcast",
    help="Train language-model web agents; every run can be replayed. `hindcast start` begins one.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for part in PARTS:
    app.add_typer(part)


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
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def leave(error: BaseException) -> None:
    """Say what went wrong and leave with the code that it stands for; raise what is not ours."""
    if not isinstance(error, HindcastError):
        raise error
    sys.stderr.write(f"{error}\n")
    sys.exit(error.exit_code)


def first_of_ours(group: BaseExceptionGroup[BaseException]) -> HindcastError | None:
    """The first error meant for a user among those of a task group."""
    for error in group.exceptions:
        found = first_of_ours(error) if isinstance(error, BaseExceptionGroup) else error
        if isinstance(found, HindcastError):
            return found
    return None
