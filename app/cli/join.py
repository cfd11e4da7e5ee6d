"""`hindcast join`."""

import asyncio
import socket
from typing import Annotated

import msgspec
import typer

from hindcast.app.cli.options import Json
from hindcast.app.cli.output import print_json, print_text
from hindcast.app.settings.checks.webarena import require_accounts, require_one_resetter
from hindcast.app.settings.web_tasks import require_actors, require_task_secrets
from hindcast.app.system.home import home_folder
from hindcast.app.system.join import JoinRequest, parse_machine, parse_roles, plan_join
from hindcast.app.system.joined_system import run_joined
from hindcast.app.system.system import holding

app = typer.Typer()


@app.command("join")
def join(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="The broker: tls://host:4222, several with commas.")
    ],
    roles: Annotated[
        str, typer.Option(metavar="ROLE,ROLE", help="Roles of this machine, one process for each word.")
    ] = "actor",
    run: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="Which run; default: the only one that the broker has."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="This machine's unique name in the log; default: its host name."),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting for this machine; repeatable."),
    ] = None,
    other_code: Annotated[
        bool, typer.Option("--other-code", help="Join although the run has another code revision.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Take part in a run from another machine, until Ctrl-C or the end of the run. Settings come from the run's log.

    HINDCAST_HOME/secrets must hold the passwords of the roles and of `reader` (hindcast broker users), and ca.pem where the
    broker's certificate is signed by your own authority.

    Example: hindcast join tls://nats-1:4222,tls://nats-2:4222 --roles actor,actor
    """
    home = home_folder()
    asked = JoinRequest(
        url=url,
        run=run,
        counts=parse_roles(roles),
        machine=parse_machine(name or socket.gethostname()),
        overrides=overrides or [],
        other_code=other_code,
    )
    with holding(home):
        handle = asyncio.run(plan_join(home, asked))
        actors = asked.counts.get("actor", 0)
        if actors:
            require_actors(handle.settings, actors)
            require_task_secrets(handle.settings)
            require_accounts(handle.settings)
            require_one_resetter(handle.settings, actors)
        left = asyncio.run(run_joined(handle, asked, as_json=as_json))
    if as_json:
        print_json(msgspec.to_builtins(left))
    else:
        print_text(f"left run {left.run} after {left.wall_s:.0f} s: {left.reason}")
