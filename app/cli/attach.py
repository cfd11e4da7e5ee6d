"""`hindcast attach`."""

import asyncio
import os
import signal
import sys
import traceback
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, NoReturn

import msgspec
import typer

from hindcast.app.attach.attachment import Attachment, AttachmentReport, AttachmentSession, NeverBegun, attach
from hindcast.app.attach.store import ConsumerPosition
from hindcast.app.attach.target import Attached, TargetFailed
from hindcast.app.cli.bars import progress_bar
from hindcast.app.cli.options import Json, RunName
from hindcast.app.cli.output import print_json, print_text
from hindcast.app.runs.runs import RUN_NAME, RunHandle, open_run
from hindcast.app.system.private_home import users_umask
from hindcast.core.errors import SettingsError
from hindcast.events.log.consumer import ConsumerStopped

app = typer.Typer()


@app.command("attach")
def attach_consumer(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:NAME", help="A consumer, installed or in the current folder.")
    ],
    begin: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="start|live|POSITION",
            help="Where a new consumer begins; a known one continues.",
        ),
    ] = "start",
    run: RunName = None,
    name: Annotated[
        str | None, typer.Option(help="Name that its position is stored under; default: the module's.")
    ] = None,
    until: Annotated[
        str, typer.Option(metavar="POSITION|end", help="Detach there; `end` is the current end of the log.")
    ] = "",
    retries: Annotated[int, typer.Option(min=0, help="Retries of an event that it refuses.")] = 4,
    set_aside: Annotated[
        bool,
        typer.Option("--set-aside", help="Skip events that it refuses; `consumer list` counts them."),
    ] = False,
    store: Annotated[
        str,
        typer.Option(metavar="URL", help="Database for its position and effect, instead of a SQLite file."),
    ] = "",
    as_json: Json = False,
) -> None:
    """Attach your own consumer to a run. A slow, blocked or dead consumer does not affect the run.

    Its position is stored together with its effect; the same command continues exactly there. Ctrl-C detaches.

    Example: hindcast attach hindcast.app.examples.success_watcher:consumer --from live
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # show a consumer's output at once, also in a pipe
    handle = open_run(run)
    attachment = Attachment(
        target=target,
        name=_checked(name or target.partition(":")[0].rpartition(".")[2]),
        begin=begin,
        until=until,
        store=store,
        tries=retries + 1,
        set_aside=set_aside,
    )
    try:
        with users_umask(Path.cwd(), handle.home):  # a consumer's own files get the user's umask
            report = asyncio.run(_attach(handle, attachment, as_json=as_json))
    except NeverBegun as error:
        _leave_stuck(f"{error}.")
    if as_json:
        print_json(msgspec.to_builtins(report))
    elif not report.stuck:
        print_text(f"detached at position {report.position} after {report.taken} events{_letters(report)}")
    if report.stuck:
        _leave_stuck(
            f"{report.name} did not return from the event after position {report.position}; its transaction was rolled back "
            "and the next start takes that event again."
        )


def _leave_stuck(text: str) -> NoReturn:
    """Print why and exit at once: a normal exit would wait without end for the thread that the consumer blocks."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
    sys.stdout.flush()
    os._exit(1)


def _checked(name: str) -> str:
    if not RUN_NAME.fullmatch(name):
        raise SettingsError(
            f"--name {name!r} cannot be a consumer's name: use small letters, digits, `-` and `_`, at most 48"
        )
    return name


def _letters(report: AttachmentReport) -> str:
    return f", {report.dead_letters} set aside" if report.dead_letters else ""


async def _attach(handle: RunHandle, attachment: Attachment, *, as_json: bool) -> AttachmentReport:
    session = AttachmentSession()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, session.stop.set)
    with progress_bar(as_json=as_json) as bar:

        def on_start(attached: Attached, standing: ConsumerPosition, last: int, resumed: bool) -> None:
            if not as_json:
                word = "continues" if resumed else "begins"
                sys.stderr.write(
                    f"{attachment.name} {word} after position {standing.position} of {last} in run {standing.run}. "
                    f"{attached.doc}".rstrip()
                    + "\n"
                )
            if last > standing.position:
                catching_up = bar.add_task("catching up", total=last, completed=standing.position)

                def on_progress(position: int) -> None:
                    bar.update(catching_up, completed=position, visible=position < last)

                session.on_progress = on_progress

        session.on_start = on_start
        try:
            return await attach(handle, attachment, session)
        except (ConsumerStopped, TargetFailed) as error:
            if error.__cause__ is not None:
                traceback.print_exception(error.__cause__)
            raise
