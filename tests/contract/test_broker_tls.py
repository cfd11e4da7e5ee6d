"""A broker at a tls:// address: whose certificate is believed, and that no password leaves this machine in the clear."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hindcast.core.errors import BrokerDenied, BrokerUnreachable
from hindcast.events.jetstream.accounts import log_accounts
from hindcast.events.jetstream.broker import HOST, users
from hindcast.events.jetstream.connection import connect
from servers.certificates import certificate
from servers.nats_servers import Server, serving

pytestmark = pytest.mark.broker

QUICK_S = 3.0


class Encrypted:
    """A server that wants TLS and a client's certificate, one that wants none, and the certificates."""

    def __init__(self, folder: Path, server: Server, plain: Server) -> None:
        self.folder, self.port, self.plain_port = folder, server.port, plain.port

    def home(self, place: Path, **files: str) -> Path:
        """A home with a password, and these files under `secrets/`."""
        (place / "secrets").mkdir(parents=True)
        for name, of in {"reader": "home/secrets/reader", **files}.items():
            target = place / "secrets" / name.replace("_", ".")
            target.write_text((self.folder / of).read_text())
            target.chmod(0o600)
        return place


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Encrypted]:
    folder = tmp_path_factory.mktemp("tls")
    certificate(folder, "authority")
    for name in ("server", "client"):
        certificate(folder, name, signer="authority")
    certificate(folder, "stranger")
    named = {"accounts": log_accounts(users(folder / "home")), "host": HOST}
    tls = {
        "cert_file": str(folder / "server.pem"),
        "key_file": str(folder / "server.key"),
        "ca_file": str(folder / "authority.pem"),
        "verify": True,
    }

    def plan(ports: Any) -> list[Server]:
        return [
            Server(folder / "encrypted", {**named, "port": ports[0], "tls": tls}),
            Server(folder / "plain", {**named, "port": ports[1]}),
        ]

    with serving(2, plan) as (server, plain):
        yield Encrypted(folder, server, plain)


OURS = {"ca_pem": "authority.pem", "client_pem": "client.pem", "client_key": "client.key"}


async def test_a_certificate_by_our_authority_is_believed_and_ours_is_shown(
    encrypted: Encrypted, tmp_path: Path
) -> None:
    home = encrypted.home(tmp_path / "home", **OURS)
    connection = await connect(f"tls://{HOST}:{encrypted.port}", role="reader", home=home, timeout_s=30)
    assert connection.is_connected
    await connection.close()


@pytest.mark.parametrize(
    "files",
    [
        pytest.param(
            {"client_pem": "client.pem", "client_key": "client.key"}, id="the machine's own authorities"
        ),
        pytest.param(OURS | {"ca_pem": "stranger.pem"}, id="another authority"),
    ],
)
async def test_a_certificate_that_nobody_vouches_for_is_refused_at_once(
    encrypted: Encrypted, tmp_path: Path, files: dict[str, str]
) -> None:
    home = encrypted.home(tmp_path / "home", **files)
    with pytest.raises(BrokerDenied, match=r"not one that we believe: .*secrets/ca\.pem"):
        await connect(f"tls://{HOST}:{encrypted.port}", role="reader", home=home, timeout_s=30)


async def test_without_a_certificate_of_ours_nobody_gets_in(encrypted: Encrypted, tmp_path: Path) -> None:
    home = encrypted.home(tmp_path / "home", ca_pem="authority.pem")
    with pytest.raises(BrokerUnreachable, match="does not answer"):
        await connect(f"tls://{HOST}:{encrypted.port}", role="reader", home=home, timeout_s=QUICK_S)


async def test_a_server_that_does_not_encrypt_gets_no_password(encrypted: Encrypted, tmp_path: Path) -> None:
    home = encrypted.home(tmp_path / "home", **OURS)
    with pytest.raises(BrokerDenied, match="does not encrypt, though its address is tls://"):
        await connect(f"tls://{HOST}:{encrypted.plain_port}", role="reader", home=home, timeout_s=30)
    heard = bytearray()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.15.1","max_payload":1000,"headers":true}\r\n')
        heard.extend(await reader.read(4096))
        writer.close()

    async with await asyncio.start_server(listen, HOST, 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(BrokerDenied, match="does not encrypt"):
            await connect(f"tls://{HOST}:{port}", role="reader", home=home, timeout_s=30)
    assert heard == b""


async def test_files_that_cannot_be_used_are_named(encrypted: Encrypted, tmp_path: Path) -> None:
    home = encrypted.home(tmp_path / "home", **OURS)
    (home / "secrets" / "client.key").chmod(0o644)
    with pytest.raises(BrokerDenied, match=r"client\.key can be read by others.*chmod 600"):
        await connect(f"tls://{HOST}:{encrypted.port}", role="reader", home=home)
    (home / "secrets" / "client.key").chmod(0o600)
    (home / "secrets" / "ca.pem").write_text("no certificate")
    with pytest.raises(BrokerDenied, match=r"ca\.pem.*cannot be used"):
        await connect(f"tls://{HOST}:{encrypted.port}", role="reader", home=home)
