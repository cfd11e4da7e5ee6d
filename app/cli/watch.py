"""`hindcast watch`."""

import asyncio
import sys
import time
from contextlib import ExitStack, suppress
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from app.cli.bars import progress_bar
from app.cli.options import Json, RunName
from app.cli.output import print_json, print_text
from app.runs import RunHandle, open_run
from app.watch.following import look
from app.watch.rendering import as_line, as_screen
from app.watch.view import View

app = typer.Typer()

SCREEN_S = 1.0
LINES_S = 10.0


@app.command("watch")
def watch_run(
    run: RunName = None,
    once: Annotated[bool, typer.Option("--once", help="One look, then leave.")] = False,
    interval_s: Annotated[
        float | None,
        typer.Option("--interval", min=0.1, help="Seconds between looks; 1 on a terminal, else 10."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Look at a run while it goes: actors, success, learner, consumers with their lag, and what holds it up, in words.

    Plain lines where the output is no terminal; with --json one document per look. Ctrl-C leaves; the run goes on.

    Example: hindcast watch --once --json
    """
    handle = open_run(run)
    on_screen = sys.stdout.isatty() and not as_json and not once
    every_s = interval_s or (SCREEN_S if on_screen else LINES_S)
    with suppress(KeyboardInterrupt):
        _watch(handle, every_s, once=once, on_screen=on_screen, as_json=as_json)


def _watch(handle: RunHandle, every_s: float, *, once: bool, on_screen: bool, as_json: bool) -> None:
    with ExitStack() as stack:
        bar = stack.enter_context(progress_bar(as_json=as_json))
        reading = bar.add_task("reading the log", total=None)
        live: Live | None = None

        def show(view: View) -> bool:
            nonlocal live
            bar.stop()
            if not on_screen:
                _print(view, once=once, as_json=as_json)
            elif live is None:
                live = stack.enter_context(
                    Live(as_screen(view), console=Console(), auto_refresh=False, screen=True)
                )
            else:
                live.update(as_screen(view), refresh=True)
            return not once

        def on_catching_up(done: int, total: int) -> None:
            bar.update(reading, completed=done, total=total)

        asyncio.run(look(handle, show, interval_s=every_s, on_catching_up=on_catching_up))


def _print(view: View, *, once: bool, as_json: bool) -> None:
    """One look as JSON, as tables when it is the only one, else as a line."""
    if as_json:
        print_json(view)
    elif once:
        Console(highlight=False).print(as_screen(view))
    else:
        print_text(f"[{time.strftime('%H:%M:%S')}] {as_line(view)}")
    sys.stdout.flush()
