"""`hindcast login`."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from hindcast.app.cli.options import Json
from hindcast.app.cli.output import print_json, print_text
from hindcast.app.demonstrations.screen import require_screen, type_done
from hindcast.app.settings.configuration import resolve
from hindcast.core.errors import SettingsError

app = typer.Typer()


@app.command("login")
def login(
    url: Annotated[str, typer.Argument(help="Where to log in.")],
    name: Annotated[str, typer.Option(help="Name of the login in tasks: login = { state = NAME, … }.")],
    origin: Annotated[
        list[str] | None,
        typer.Option(
            help="Origins that the browser may reach, as scheme://host:port; repeatable. Default: the URL's."
        ),
    ] = None,
    script: Annotated[
        Path | None, typer.Option(help="Steps to do, written as a login of a task file: steps = [ … ].")
    ] = None,
    headless: Annotated[bool, typer.Option("--headless", help="Without a window; needs --script.")] = False,
    as_json: Json = False,
) -> None:
    """Log in to a site once in a browser window, and store the login for tasks that name it.

    Example: hindcast login http://127.0.0.1:8917/login --name notes
    """
    from hindcast.actors.environments.web.scripted import read_script
    from hindcast.app.demonstrations.logins import save_login
    from hindcast.app.system.home import home_folder
    from hindcast.app.system.sites import login_states

    steps = read_script(script).steps if script else ()
    if headless and not steps:
        raise SettingsError("--headless opens no window: give the steps with --script")
    if not headless:
        require_screen()

    async def logged_in() -> None:
        if headless:
            return
        sys.stderr.write("log in, then type `done` here; Ctrl-C cancels\n")
        if await type_done() is None:
            raise SettingsError("the input ended before `done`: nothing was stored")

    path = asyncio.run(
        save_login(
            url,
            name=name,
            origins=origin or (),
            steps=steps,
            states=login_states(home_folder()),
            settings=resolve().settings.actors,
            headed=not headless,
            logged_in=logged_in,
        )
    )
    if as_json:
        print_json({"name": name, "file": str(path)})
    else:
        print_text(
            f'stored as {name!r} in {path}. In a task file: login = {{ state = "{name}", signed_in = "…" }}'
        )
