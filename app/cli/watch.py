"""`hindcast watch` and `hindcast page`: show running and finished runs."""

import asyncio
import os
import secrets
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from hindcast.app.cli.bars import progress_bar
from hindcast.app.cli.options import RunName
from hindcast.app.cli.output import Output, Report
from hindcast.app.cli.read_model import update_read_models
from hindcast.app.runs.runs import RunHandle, list_runs, open_run
from hindcast.app.system.home import home_folder
from hindcast.app.system.listen_addresses import page_address, page_token, with_token
from hindcast.app.system.processes import list_processes
from hindcast.app.watch.follower import Counts, WatchReadModel, look
from hindcast.app.watch.rendering import as_line, as_screen
from hindcast.app.watch.view import RunView
from hindcast.core.errors import HindcastError
from hindcast.storage.readmodel.database import ReadModelUnavailable

app = typer.Typer()

SCREEN_S = 1.0
LINES_S = 10.0


@app.command("watch")
def watch_run(
    output: Output,
    run: RunName = None,
    once: Annotated[bool, typer.Option("--once", help="Print once, then exit.")] = False,
    interval_s: Annotated[
        float | None,
        typer.Option("--interval", min=0.1, help="Seconds between updates; 1 on a terminal, else 10."),
    ] = None,
) -> None:
    """Watch a running run: actors, success, learner, consumers with their lag, and what delays it.

    On a terminal: `[` and `]` switch pages, j and k move, o opens an episode and a step, q quits without stopping the run.
    Without a terminal it prints plain lines; with --json, one document at each update, until Ctrl-C.

    Example: hindcast watch --once --json
    """
    handle = open_run(run)
    if _is_terminal() and not output.as_json and not once:
        _watch_on_screen(handle, interval_s or SCREEN_S)
        return
    with suppress(KeyboardInterrupt):
        _watch_in_lines(handle, interval_s or LINES_S, once=once, output=output)


def _is_terminal() -> bool:
    """Whether input and output are a terminal that can be drawn on."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def _watch_on_screen(handle: RunHandle, every_s: float) -> None:
    from hindcast.app.watch.terminal import WatchTerminal

    ended_by = WatchTerminal(handle, interval_s=every_s).run()
    if ended_by is not None:
        raise ended_by


def _watch_in_lines(handle: RunHandle, every_s: float, *, once: bool, output: Output) -> None:
    as_tables = once and not output.as_json
    curve = _curve(handle) if as_tables else []
    with progress_bar() as bar:
        reading = bar.add_task("reading the log", total=None)

        def show(view: RunView) -> bool:
            bar.stop()
            if as_tables:
                Console(highlight=False).print(as_screen(view, curve))
            else:
                output.print(Report(view, [f"[{time.strftime('%H:%M:%S')}] {as_line(view)}"]))
            sys.stdout.flush()
            return not once

        def on_catching_up(done: int, total: int) -> None:
            bar.update(reading, completed=done, total=total)

        asyncio.run(look(handle, show, interval_s=every_s, on_catching_up=on_catching_up))


def _curve(handle: RunHandle) -> list[Counts]:
    """Success over the whole run; empty without a read model."""
    model = WatchReadModel(handle)
    try:
        return asyncio.run(model.curve())
    except ReadModelUnavailable:
        return []
    finally:
        model.close()


class NoPageServed(HindcastError):
    """No system in this home serves a page."""


@app.command("page")
def show_page(
    output: Output,
    host: Annotated[
        str, typer.Option(help="Address to listen on; other machines reach it unless it is loopback.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 0,
    only_address: Annotated[
        bool,
        typer.Option(
            "--address", help="Print the address of the page that `hindcast start` serves, and exit."
        ),
    ] = False,
) -> Report | None:
    """Serve the page of this home's runs until Ctrl-C: all runs, and of each its episodes, timeline, lineage, settings.

    `hindcast start` also serves it and prints its address, whose token admits a browser. Every page has a `.json` version.

    Example: hindcast page --port 8080
    """
    from hindcast.app.page.application import serve_page
    from hindcast.app.page.guard import is_loopback

    home = home_folder()
    if only_address:
        address = running_page(home)
        return Report({"address": address}, [address])
    open_run(home=home)
    _bring_up_all(home)
    # network traffic can be overheard, so this token is valid only while the server runs
    token = page_token(home) if is_loopback(host) else secrets.token_urlsafe(32)

    def ready(base: str) -> None:
        address = with_token(base, token)
        output.print(Report({"address": address}, [f"{address}   (Ctrl-C ends it)"]))

    asyncio.run(serve_page(home, host=host, port=port, token=token, ready=ready))
    return None


def _bring_up_all(home: Path) -> None:
    """Bring the read models of all runs up to date: no projector has followed a fork that only a command wrote."""
    runs: list[RunHandle] = []
    for name in list_runs(home):
        with suppress(HindcastError):  # the page says why it cannot be read
            runs.append(open_run(name, home=home))
    update_read_models(runs)


def running_page(home: Path) -> str:
    """Address, with token, of the page of the system that runs in a home.

    Raises:
        NoPageServed: no system runs, or it serves no page.

    """
    serving = any(
        entry.name.startswith("page.") and entry.alive and entry.state == "ready"
        for entry in list_processes(home / "processes")
    )
    address = page_address(home) if serving else None
    if address is None:
        raise NoPageServed(
            f"no system in {home} serves a page now. Run: hindcast start, or hindcast page without a running system."
        )
    return address
