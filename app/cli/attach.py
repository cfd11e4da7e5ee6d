"""`hindcast attach / consumer / alerts`: a user's own consumers of a run's log."""

import asyncio
import os
import signal
import sys
import traceback
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, NoReturn

import msgspec
import typer

from hindcast.app.alerts.incidents import AlertMessage
from hindcast.app.alerts.watcher import watch_alerts
from hindcast.app.alerts.webhook import require_webhook
from hindcast.app.attach.attachment import (
    Attachment,
    AttachmentReport,
    AttachmentSession,
    NeverBegun,
    attach,
    consumers_folder,
    detached,
    store_url,
)
from hindcast.app.attach.bridge import bridge_target
from hindcast.app.attach.consumers import list_consumers
from hindcast.app.attach.store import ConsumerPosition, ConsumerStore
from hindcast.app.attach.target import Attached, TargetFailed
from hindcast.app.cli.bars import progress_bar
from hindcast.app.cli.options import Limit, RunName
from hindcast.app.cli.output import Block, Fields, Output, Report, Table, say, shorten
from hindcast.app.runs.runs import RUN_NAME, RunHandle, open_run
from hindcast.app.system.home import users_umask
from hindcast.app.system.interrupts import heed_interrupts
from hindcast.app.system.processes import read_json
from hindcast.app.watch.rendering import seconds
from hindcast.core.errors import HindcastError, SettingsError
from hindcast.core.text.counts import count_of
from hindcast.core.text.nearest import advice
from hindcast.events.log.consumer import ConsumerStopped

app = typer.Typer()


@app.command("attach")
def attach_consumer(
    output: Output,
    target: Annotated[
        str,
        typer.Argument(
            metavar="BRIDGE|MODULE:NAME",
            help="A bridge to another tool, such as wandb, or a consumer, installed or in the current folder.",
        ),
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
        str,
        typer.Option(
            metavar="POSITION|end", help="Detach at this position; `end` is the current end of the log."
        ),
    ] = "",
    retries: Annotated[int, typer.Option(min=0, help="Retries of an event that the consumer refuses.")] = 4,
    set_aside: Annotated[
        bool,
        typer.Option(
            "--set-aside", help="Skip events that the consumer still refuses; `consumer list` counts them."
        ),
    ] = False,
    store: Annotated[
        str,
        typer.Option(metavar="URL", help="Database for its position and effect, instead of a SQLite file."),
    ] = "",
) -> Report:
    """Attach a bridge or your own consumer to a run. A slow, blocked or dead consumer does not affect the run.

    Its position is stored together with its effect; the same command continues exactly there. Ctrl-C detaches.

    Example: hindcast attach hindcast.app.examples.success_watcher:consumer --from live
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # show a consumer's output immediately, also in a pipe
    handle = open_run(run)
    attachment = Attachment(
        target=target if ":" in target else bridge_target(target),
        name=_checked(name or target.partition(":")[0].rpartition(".")[2]),
        begin=begin,
        until=until,
        store=store,
        tries=retries + 1,
        set_aside=set_aside,
    )
    try:
        with users_umask(Path.cwd(), handle.home):  # a consumer's own files get the user's umask
            report = asyncio.run(_attach(handle, attachment))
    except NeverBegun as error:
        _leave_stuck(f"{error}.")
    if report.stuck:
        output.print(Report(report, []))
        _leave_stuck(
            f"{report.name} did not return from the event after position {report.position}; its transaction was rolled back "
            "and the next start takes that event again."
        )
    aside = f", {report.dead_letters} set aside" if report.dead_letters else ""
    return Report(
        report, [f"detached at position {report.position} after {count_of(report.taken, 'event')}{aside}"]
    )


def _leave_stuck(text: str) -> NoReturn:
    """Print why and exit immediately: a normal exit would wait forever for the thread that the consumer blocks."""
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


async def _attach(handle: RunHandle, attachment: Attachment) -> AttachmentReport:
    session = AttachmentSession()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, session.stop.set)
    with progress_bar() as bar:

        def on_start(attached: Attached, standing: ConsumerPosition, last: int, resumed: bool) -> None:
            word = "continues" if resumed else "begins"
            where = f"position {standing.position} of {last} in run {standing.run}"
            say(f"{attachment.name} {word} after {where}. {attached.doc}".rstrip())
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


consumer_app = typer.Typer(
    name="consumer", help="List consumers of a run's log and their lag.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(help="Name of an attached consumer.")]
StoreUrl = Annotated[
    str,
    typer.Option("--store", metavar="URL", help="Database with its position, if not its own file."),
]
DETAIL_WIDTH = 70


class NoSuchConsumer(HindcastError):
    """No consumer of this name has been attached to the run."""


@consumer_app.command("list")
def list_all(
    run: RunName = None,
    store: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="Also consumers with their position in this database; repeatable."),
    ] = None,
) -> Report:
    """List every consumer with its lag in time and in events: the roles, work queues, and attached consumers.

    Example: hindcast consumer list run-1 --json
    """
    handle = open_run(run)
    rows = asyncio.run(list_consumers(handle, stores=tuple(store or ())))
    return Report(
        {"run": handle.name, "consumers": rows},
        [
            Table(
                ("consumer", "kind", "state", "lag", "events", "position", "set aside", "detail"),
                [
                    (
                        row.name,
                        row.kind,
                        row.state,
                        seconds(row.lag_s),
                        row.lag_events,
                        row.position,
                        row.dead_letters,
                        shorten(row.detail or row.target, DETAIL_WIDTH),
                    )
                    for row in rows
                ],
                empty="No consumer reads this run.",
            )
        ],
    )


@consumer_app.command("show")
def show_one(name: Name, run: RunName = None, store: StoreUrl = "", limit: Limit = 20) -> Report:
    """Show an attached consumer's position, its state if it is a fold, and the events it set aside.

    Example: hindcast consumer show success_watcher --json
    """
    handle = open_run(run)
    opened = _store(handle, name, store)
    try:
        standing = next((one for one in opened.standings(handle.name) if one.name == name), None)
        if standing is None:
            raise _unknown(handle, name, opened)
        number, letters = opened.dead_letters(handle.name, name, limit=limit)
    finally:
        opened.close()
    state: Any = None if standing.state is None else msgspec.msgpack.decode(standing.state)
    data = {
        "name": name,
        "run": handle.name,
        "target": standing.target,
        "host": standing.host,
        "store": opened.shown_url,
        "position": standing.position,
        "state": state,
        "dead_letters": {"number": number, "newest": letters},
    }
    text: list[Block] = [
        Fields(
            [
                ("consumer", name),
                ("run", handle.name),
                ("target", standing.target),
                ("position", standing.position),
                ("store", opened.shown_url),
                ("state", None if state is None else msgspec.json.encode(state).decode()),
                ("set aside", number),
            ]
        )
    ]
    if letters:
        rows = [(one.position, one.type, shorten(one.error, DETAIL_WIDTH)) for one in letters]
        text += ["", Table(("position", "type", "error"), rows)]
    return Report(data, text)


@consumer_app.command("forget")
def forget(name: Name, run: RunName = None, store: StoreUrl = "") -> Report:
    """Delete an attached consumer's position, state and SQLite file; the next attach starts again.

    Example: hindcast consumer forget success_watcher
    """
    handle = open_run(run)
    with detached(handle, name):
        opened = _store(handle, name, store)
        try:
            if not any(one.name == name for one in opened.standings(handle.name)):
                raise _unknown(handle, name, opened)
            opened.forget(handle.name, name)
        finally:
            opened.close()
        if opened.shown_url == store_url(handle, name) and opened.file is not None:
            for ending in ("", "-wal", "-shm"):
                opened.file.with_name(opened.file.name + ending).unlink(missing_ok=True)
        (consumers_folder(handle.folder) / f"{name}.json").unlink(missing_ok=True)
    return Report(
        {"forgotten": name, "run": handle.name}, [f"{name} is forgotten; the next attach starts again"]
    )


def _store(handle: RunHandle, name: str, url: str) -> ConsumerStore:
    """Open the given store, or else the one that the consumer used last."""
    status = read_json(consumers_folder(handle.folder) / f"{name}.json") or {}
    return ConsumerStore(url or status.get("store") or store_url(handle, name))


def _unknown(handle: RunHandle, name: str, store: ConsumerStore) -> NoSuchConsumer:
    names = sorted(path.stem for path in consumers_folder(handle.folder).glob("*.json"))
    return NoSuchConsumer(
        f"no consumer called {name!r} has a position for run {handle.name} in {store.shown_url}; among those attached "
        f"here {advice(name, names)}. Run: hindcast consumer list"
    )


@app.command("alerts")
def alerts(
    output: Output,
    run: RunName = None,
    webhook: Annotated[
        str, typer.Option(metavar="URL", help="Also send each alert to this address, as JSON.")
    ] = "",
    begin: Annotated[
        str,
        typer.Option(
            "--from", metavar="PLACE", help="Where to begin at the first start: start, live, a position."
        ),
    ] = "live",
    also: Annotated[
        list[str] | None,
        typer.Option(metavar="ALERT", help="Also watch for this alert, such as a plugin's."),
    ] = None,
    success_fall: Annotated[
        float | None,
        typer.Option(min=0, max=1, show_default="0.1", help="Drop of success from the best earlier stretch."),
    ] = None,
    stretch: Annotated[
        int | None, typer.Option(min=10, show_default="100", help="Number of judged episodes in a stretch.")
    ] = None,
    mismatch_times: Annotated[
        float | None,
        typer.Option(
            min=1, show_default="3.0", help="Mismatch of the last 10 updates, as a multiple of the 50 before."
        ),
    ] = None,
    lag: Annotated[
        float | None, typer.Option(min=1, show_default="60.0", help="Seconds that a consumer may be behind.")
    ] = None,
    still: Annotated[
        float | None,
        typer.Option(min=1, show_default="300.0", help="Seconds without an event while the system is up."),
    ] = None,
) -> None:
    """Watch a run and alert once for each drop of success, rise of mismatch, growing lag or standstill; Ctrl-C ends it.

    The run's `telemetry.alerts` and `telemetry.alert_options` choose the alerts, and `hindcast start` shows the same ones. This
    command is a consumer with its own store: started again, it continues from its position and repeats no alert.

    Example: hindcast alerts --webhook http://127.0.0.1:9000/alerts
    """
    if webhook:
        require_webhook(webhook)
    given = (
        ("success", "fall", success_fall),
        ("success", "stretch", stretch),
        ("mismatch", "times", mismatch_times),
        ("lag", "lag_s", lag),
        ("lag", "still_s", still),
        ("still", "still_s", still),
    )
    options: dict[str, dict[str, float]] = {}
    for alert, option, value in given:
        if value is not None:
            options.setdefault(alert, {})[option] = value

    def said(message: AlertMessage) -> None:
        output.print(Report(message, [message.line]))

    async def watch() -> None:
        session = AttachmentSession()
        heed_interrupts(session.stop)
        await watch_alerts(
            open_run(run), session, said, also=also or (), options=options, begin=begin, webhook=webhook
        )

    asyncio.run(watch())


app.add_typer(consumer_app)
