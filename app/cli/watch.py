"""`hindcast watch`."""

import asyncio
import os
import sys
import time
from contextlib import suppress
from typing import Annotated

import typer
from rich.console import Console

from hindcast.app.cli.bars import progress_bar
from hindcast.app.cli.options import Json, RunName
from hindcast.app.cli.output import print_json, print_text
from hindcast.app.runs.runs import RunHandle, open_run
from hindcast.app.watch.follower import look
from hindcast.app.watch.read_model import Counts, WatchReadModel
from hindcast.app.watch.rendering import as_line, as_screen
from hindcast.app.watch.view import RunView
from hindcast.storage.readmodel.database import ReadModelUnavailable

app = typer.Typer()

SCREEN_S = 1.0
LINES_S = 10.0


@app.command("watch")
def watch_run(
    run: RunName = None,
    once: Annotated[bool, typer.Option("--once", help="Print once, then exit.")] = False,
    interval_s: Annotated[
        float | None,
        typer.Option("--interval", min=0.1, help="Seconds between updates; 1 on a terminal, else 10."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Watch a running run: actors, success, learner, consumers with their lag, and what delays it.

    On a terminal: `[` and `]` switch pages, j and k move, o opens an episode and a step, q quits without stopping the run.
    Without a terminal it prints plain lines; with --json, one document at each update, until Ctrl-C.

    Example: hindcast watch --once --json
    """
    handle = open_run(run)
    if _is_terminal() and not as_json and not once:
        _watch_on_screen(handle, interval_s or SCREEN_S)
        return
    with suppress(KeyboardInterrupt):
        _watch_in_lines(handle, interval_s or LINES_S, once=once, as_json=as_json)


def _is_terminal() -> bool:
    """Whether the output is a screen to draw on, and the input has keys."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def _watch_on_screen(handle: RunHandle, every_s: float) -> None:
    from hindcast.app.watch.screens.terminal import WatchTerminal

    ended_by = WatchTerminal(handle, interval_s=every_s).run()
    if ended_by is not None:
        raise ended_by


def _watch_in_lines(handle: RunHandle, every_s: float, *, once: bool, as_json: bool) -> None:
    curve = _curve(handle) if once and not as_json else []
    with progress_bar(as_json=as_json) as bar:
        reading = bar.add_task("reading the log", total=None)

        def show(view: RunView) -> bool:
            bar.stop()
            _print(view, curve, once=once, as_json=as_json)
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


def _print(view: RunView, curve: list[Counts], *, once: bool, as_json: bool) -> None:
    """Print one view as JSON, as tables if it is the only one, else as a line."""
    if as_json:
        print_json(view)
    elif once:
        Console(highlight=False).print(as_screen(view, curve))
    else:
        print_text(f"[{time.strftime('%H:%M:%S')}] {as_line(view)}")
    sys.stdout.flush()
