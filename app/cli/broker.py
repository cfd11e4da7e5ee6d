"""`hindcast broker users`: what a broker that others run has to know of us."""

import json
import re
from pathlib import Path
from typing import Annotated

import typer

from app.cli.options import Json
from app.cli.output import print_json, print_text
from app.supervisor import home_folder
from core.errors import SettingsError
from events.broker import PUBLISHES, leaf_user, users, write_private

app = typer.Typer(name="broker", help="A broker that others run.", no_args_is_help=True)


LEAF_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")


@app.command("users")
def users_of_roles(
    file: Annotated[
        Path, typer.Argument(help="File to write, for `include` in an account of its configuration.")
    ],
    roles: Annotated[
        str | None, typer.Option(metavar="ROLE,ROLE", help="Only these, such as actor,reader; default: all.")
    ] = None,
    domain: Annotated[
        str, typer.Option(help="JetStream domain of the log, where leaf nodes are in use.")
    ] = "",
    leaf: Annotated[
        str | None,
        typer.Option(
            help="At the hub: also a user of this name for a leaf node with actors; needs --domain."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a nats-server users block: every role with its password and what it may publish and listen to.

    Passwords are made once and lie under HINDCAST_HOME/secrets, readable by their owner alone, as the file is. Copy those that
    another machine needs (for an actor: actor and reader) into its own secrets folder.

    Example: hindcast broker users /etc/nats/hindcast-users.conf
    """
    wanted = [role.strip() for role in roles.split(",")] if roles else list(PUBLISHES)
    unknown = [role for role in wanted if role not in PUBLISHES]
    if unknown:
        raise SettingsError(f"there is no role {', '.join(unknown)}; there are: {', '.join(PUBLISHES)}")
    home = home_folder()
    if leaf is None:
        block = users(home, roles=wanted, domain=domain)
    else:
        if not domain or leaf in PUBLISHES or not LEAF_NAME.fullmatch(leaf):
            raise SettingsError(
                f"--leaf {leaf!r} needs --domain, the hub's own, and a name of small letters, digits and `-` that is no role's"
            )
        block = [*users(home, roles=wanted), leaf_user(home, leaf, domain=domain)]
    write_private(file, json.dumps({"users": block}, indent=1) + "\n")
    if as_json:
        print_json(
            {"file": str(file), "roles": [user["user"] for user in block], "secrets": str(home / "secrets")}
        )
    else:
        print_text(f"{len(block)} users written to {file}; their passwords lie in {home / 'secrets'}")
