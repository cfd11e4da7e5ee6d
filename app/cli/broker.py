"""`hindcast broker users`: user accounts for a broker that you run yourself."""

import re
from pathlib import Path
from typing import Annotated

import typer

from hindcast.app.cli.options import Json
from hindcast.app.cli.output import print_json, print_text
from hindcast.app.system.home import home_folder
from hindcast.core.errors import SettingsError
from hindcast.core.text.nearest import advice
from hindcast.events.jetstream.accounts import PUBLISHES, leaf_accounts, log_accounts
from hindcast.events.jetstream.broker import config_text, users, write_private

app = typer.Typer(name="broker", help="Set up a broker that you run yourself.", no_args_is_help=True)


LEAF_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")


@app.command("users")
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
    as_json: Json = False,
) -> None:
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
            f"--leaf {leaf!r}: a name of small letters, digits and `-` that is no role's, for the server that holds the log; "
            "--at-leaf is for the other end"
        )
    home = home_folder()
    block = users(home, roles=wanted, leaf=leaf or "")
    accounts = leaf_accounts(block) if at_leaf else log_accounts(block)
    write_private(file, config_text(accounts).removeprefix("{").removesuffix("}"))
    names = [user["user"] for role_users in block.values() for user in role_users]
    if as_json:
        print_json({"file": str(file), "roles": names, "secrets": str(home / "secrets")})
    else:
        print_text(
            f"{len(accounts)} accounts with {len(names)} users written to {file}; their passwords are in {home / 'secrets'}"
        )
