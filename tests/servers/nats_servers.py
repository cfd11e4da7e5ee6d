"""Several nats-servers on loopback, as people other than Hindcast run them: a hub, a leaf node, a cluster of three.

Every server is a process of its own, stopped by its process id. Ports are claimed together and given to the servers a
moment later; where another program was quicker, the servers do not come up and are started on other ports.
"""

import json
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from hindcast.app.system.broker import greets
from hindcast.events.jetstream.accounts import account_of, leaf_accounts, log_accounts
from hindcast.events.jetstream.broker import (
    HOST,
    LEAF_ROLES,
    MAX_PAYLOAD_BYTES,
    find_program,
    link_name,
    users,
)

STOP_S = 30.0
TRIES = 5
SYSTEM_PASSWORD = "of-the-system-account"


class Server:
    """A nats-server with a configuration of its own; killed and started again it keeps its port and its store."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.port: int = config["port"]
        self.url = f"nats://{HOST}:{self.port}"
        self.config = folder / "nats-server.conf"
        self.config.write_text(json.dumps(config, indent=1))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> bool:
        """Whether it came up."""
        with (self.folder / "output.txt").open("ab") as output:
            self._process = subprocess.Popen(
                [str(find_program()), "--config", str(self.config)],
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        while not greets(self.port, within_s=0.5):
            if self._process.poll() is not None:
                return False
        return self._process.poll() is None

    def kill(self) -> None:
        """As a crash would: signal 9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_S)
            self._process = None

    def words(self) -> str:
        return (self.folder / "output.txt").read_text(errors="replace")[-4000:]


def free_ports(count: int) -> list[int]:
    """So many ports that nobody has now, held together so that they differ."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]


@contextmanager
def serving(ports: int, plan: Callable[[Sequence[int]], list[Server]]) -> Iterator[list[Server]]:
    """Servers that `plan` makes of so many ports, up and greeting."""
    for _ in range(TRIES):
        servers = plan(free_ports(ports))
        try:
            if not [server for server in servers if not server.start()]:
                yield servers
                return
        finally:
            for server in servers:
                server.kill()
    raise AssertionError("\n".join(server.words() for server in servers))


def _server(name: str, port: int, folder: Path, *, domain: str = "") -> dict[str, Any]:
    store = {"store_dir": str(folder / "store"), "sync_interval": "always", "max_file_store": 1 << 34}
    return {
        "server_name": name,
        "host": HOST,
        "port": port,
        "max_payload": MAX_PAYLOAD_BYTES,
        "jetstream": {**store, **({"domain": domain} if domain else {})},
    }


def hub_and_leaf(folder: Path, *, hub_home: Path, leaf_home: Path) -> Callable[[Sequence[int]], list[Server]]:
    """A hub that holds the log, and a leaf node with accounts and a JetStream of its own, for actors alone.

    The hub lets the leaf through to what actors and readers may do, and to nothing else.
    """

    def plan(ports: Sequence[int]) -> list[Server]:
        hub_port, link_port, leaf_port = ports
        hub_users = users(hub_home, leaf="far")
        hub = _server("hub", hub_port, folder / "hub", domain="hub") | {
            "accounts": log_accounts(hub_users),
            "leafnodes": {"host": HOST, "port": link_port},
        }
        remotes = [
            {
                "url": f"nats://{link['user']}:{link['password']}@{HOST}:{link_port}",
                "account": account_of(role),
            }
            for role in LEAF_ROLES
            for link in hub_users[role]
            if link["user"] == link_name("far", role)
        ]
        leaf = _server("leaf", leaf_port, folder / "leaf", domain="leaf") | {
            "accounts": leaf_accounts(users(leaf_home, roles=LEAF_ROLES)),
            "leafnodes": {"remotes": remotes, "reconnect": "1s"},
        }
        return [Server(folder / "hub", hub), Server(folder / "leaf", leaf)]

    return plan


def cluster_of_three(folder: Path, *, home: Path) -> Callable[[Sequence[int]], list[Server]]:
    """Three servers that agree on every event."""

    def plan(ports: Sequence[int]) -> list[Server]:
        routes = [f"nats://{HOST}:{port}" for port in ports[3:]]
        return [
            Server(
                folder / f"n{number}",
                _server(f"n{number}", ports[number], folder / f"n{number}")
                | {
                    "accounts": {
                        **log_accounts(users(home)),
                        "SYS": {"users": [{"user": "system", "password": SYSTEM_PASSWORD}]},
                    },
                    "system_account": "SYS",
                    "cluster": {
                        "name": "hindcast",
                        "host": HOST,
                        "port": ports[3 + number],
                        "routes": routes,
                    },
                },
            )
            for number in range(3)
        ]

    return plan
