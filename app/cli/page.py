"""`hindcast page`."""

import asyncio
import secrets
from typing import Annotated

import typer

from app.cli.options import Json
from app.cli.output import print_json, print_text
from app.supervisor import home_folder

app = typer.Typer()


@app.command("page")
def show_page(
    host: Annotated[
        str, typer.Option(help="Address to listen on; any but this machine's own asks visitors for a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 0,
    ask_token: Annotated[
        bool,
        typer.Option("--token", help="Ask for a token on this machine, too, where others have accounts."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Serve the page of this home's runs until Ctrl-C: overview, episodes step by step, timeline, lineage, settings.

    `hindcast start` serves it, too, and prints its address. Every page has a `.json` twin.

    Example: hindcast page --port 8080
    """
    from app.page.guard import is_loopback
    from app.page.serving import serve_page
    from app.runs import open_run

    open_run(home=home_folder())
    token = "" if is_loopback(host) and not ask_token else secrets.token_urlsafe(16)

    def ready(base: str) -> None:
        address = f"{base}/?token={token}" if token else f"{base}/"
        if as_json:
            print_json({"address": address})
        else:
            print_text(f"{address}   (Ctrl-C ends it)")

    asyncio.run(serve_page(home_folder(), host=host, port=port, token=token, ready=ready))
