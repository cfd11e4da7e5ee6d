"""`hindcast page`."""

import asyncio
import secrets
from pathlib import Path
from typing import Annotated

import typer

from hindcast.app.cli.options import Json
from hindcast.app.cli.output import print_json, print_text
from hindcast.app.system.home import home_folder
from hindcast.app.system.listen_addresses import page_address, page_token, with_token
from hindcast.app.system.processes import list_processes
from hindcast.core.errors import HindcastError

app = typer.Typer()


class NoPageServed(HindcastError):
    """No page is served whose address could be printed."""


@app.command("page")
def show_page(
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
    as_json: Json = False,
) -> None:
    """Serve the page of this home's runs until Ctrl-C: overview, episodes step by step, timeline, lineage, settings.

    `hindcast start` also serves it and prints its address, whose token admits a browser. Every page has a `.json` version.

    Example: hindcast page --port 8080
    """
    from hindcast.app.page.guard import is_loopback
    from hindcast.app.page.server import serve_page
    from hindcast.app.runs.runs import open_run

    home = home_folder()
    if only_address:
        _print_address(running_page(home), as_json=as_json)
        return
    open_run(home=home)
    # a network can be overheard, so this token is valid only as long as its server
    token = page_token(home) if is_loopback(host) else secrets.token_urlsafe(32)

    def ready(base: str) -> None:
        _print_address(with_token(base, token), as_json=as_json, more="   (Ctrl-C ends it)")

    asyncio.run(serve_page(home, host=host, port=port, token=token, ready=ready))


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


def _print_address(address: str, *, as_json: bool, more: str = "") -> None:
    if as_json:
        print_json({"address": address})
    else:
        print_text(f"{address}{more}")
