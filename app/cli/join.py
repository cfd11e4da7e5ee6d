"""`hindcast join` and `hindcast broker users`: run a system on several machines."""

import asyncio
import re
import socket
from pathlib import Path
from typing import Annotated

import typer

from hindcast.app.cli.output import Output, Report
from hindcast.app.settings.checks.sites import require_accounts, require_one_resetter
from hindcast.app.settings.web_tasks import require_actors, require_task_secrets
from hindcast.app.system.home import home_folder
from hindcast.app.system.join import JoinRequest, parse_machine, parse_roles, plan_join
from hindcast.app.system.start import run_joined
from hindcast.app.system.system import holding
from hindcast.core.errors import SettingsError
from hindcast.core.text.nearest import advice
from hindcast.events.jetstream.accounts import PUBLISHES, leaf_accounts, log_accounts
from hindcast.events.jetstream.broker import config_text, users, write_private

app = typer.Typer()


@app.command("join")
def join(
    output: Output,
    url: Annotated[
        str,
        typer.Argument(metavar="URL", help="Address of the broker: tls://host:4222, several with commas."),
    ],
    roles: Annotated[
        str, typer.Option(metavar="ROLE,ROLE", help="Roles of this machine, one process for each role named.")
    ] = "actor",
    run: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="The run; default: the only one that the broker has."),
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
) -> Report:
    """Take part in a run from another machine, until Ctrl-C or the end of the run. Settings come from the run's log.

    HINDCAST_HOME/secrets must hold the passwords of the roles and of `reader` (hindcast broker users), and ca.pem if the
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
        left = asyncio.run(run_joined(handle, asked, as_json=output.as_json))
    return Report(left, [f"left run {left.run} after {left.wall_s:.0f} s: {left.reason}"])


broker_app = typer.Typer(name="broker", help="Set up a broker that you run yourself.", no_args_is_help=True)


LEAF_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")


@broker_app.command("users")
def users_of_roles(
    file: Annotated[
        Path, typer.Argument(help="File to write, for `include` in `accounts` of the broker's configuration.")
    ],
    roles: Annotated[
        str | None,
        typer.Option(metavar="ROLE,ROLE", help="Only these roles, such as actor,reader; default: all."),
    ] = None,
    leaf: Annotated[
        str | None,
        typer.Option(
            help="On the server with the log: add users NAME-actor and NAME-reader for a leaf node's links.",
            metavar="NAME",
        ),
    ] = None,
    at_leaf: Annotated[
        bool, typer.Option("--at-leaf", help="For the leaf node itself, which stores no log.")
    ] = False,
) -> Report:
    """Write the accounts of a nats-server: one that owns the log, and a user for every role with its permissions.

    Passwords are created once in HINDCAST_HOME/secrets; that folder and the written file are readable by their owner alone.
    Copy the passwords that another machine needs (for an actor: actor and reader) into that machine's secrets folder.

    Example: hindcast broker users /etc/nats/hindcast-users.conf
    """
    wanted = [role.strip() for role in roles.split(",")] if roles else list(PUBLISHES)
    unknown = [role for role in wanted if role not in PUBLISHES]
    if unknown:
        raise SettingsError(f"there is no role {unknown[0]!r}; {advice(unknown[0], PUBLISHES)}")
    if file.is_dir() or not file.name:
        raise SettingsError(f"FILE {str(file)!r} cannot be written: name a file, such as users.conf")
    if leaf is not None and (at_leaf or leaf in PUBLISHES or not LEAF_NAME.fullmatch(leaf)):
        raise SettingsError(
            f"--leaf {leaf!r} must be a name of small letters, digits and `-` that is not a role. It is for the server that holds "
            "the log; for the leaf node itself, use --at-leaf without --leaf"
        )
    home = home_folder()
    block = users(home, roles=wanted, leaf=leaf or "")
    accounts = leaf_accounts(block) if at_leaf else log_accounts(block)
    write_private(file, config_text(accounts).removeprefix("{").removesuffix("}"))
    names = [user["user"] for role_users in block.values() for user in role_users]
    return Report(
        {"file": str(file), "roles": names, "secrets": str(home / "secrets")},
        [
            f"{len(accounts)} accounts with {len(names)} users written to {file}; their passwords are in {home / 'secrets'}"
        ],
    )


app.add_typer(broker_app)
