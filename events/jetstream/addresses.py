"""Addresses of a broker, and the certificates for TLS.

In addition to the roles' passwords, `secrets/` of a home may hold `ca.pem` (the authority of the broker's certificate, in
place of the machine's own list), `client.pem` and `client.key` (our own certificate, if the broker requires one). They belong
to a machine, not to a run: no setting names them, so no event does.
"""

import ssl
from pathlib import Path
from urllib.parse import urlsplit

from hindcast.core.errors import BrokerDenied, SettingsError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
ENCRYPTED = ("tls", "wss")
AUTHORITY, CERTIFICATE, KEY = "ca.pem", "client.pem", "client.key"


def servers_in(url: str) -> list[str]:
    """List the servers of `log.url`, which commas separate.

    Raises:
        SettingsError: one contains a name or password, is no address, or leaves this machine unencrypted.

    """
    servers = [server.strip() for server in url.split(",")]
    for server in servers:
        _check(server)
    if len({urlsplit(server).scheme in ENCRYPTED for server in servers}) > 1:
        raise SettingsError(
            f"log.url {url!r} reaches one cluster with and without encryption: a client that loses one server would go on "
            "in the clear. Write all of them with tls://, or, on this machine, all with nats://."
        )
    return servers


def _check(server: str) -> None:
    try:
        parts = urlsplit(server)
        has_credentials = parts.password is not None or parts.username is not None
        _ = parts.port
    except ValueError as error:
        raise SettingsError(
            f"log.url {server!r} is no broker address ({error}); it looks like nats://127.0.0.1:4222."
        ) from error
    if has_credentials:
        raise SettingsError(
            "log.url carries a name or password. Put the password into the role's file under secrets/."
        )
    if parts.scheme not in ("nats", "ws", *ENCRYPTED) or not parts.hostname:
        raise SettingsError(f"log.url {server!r} is no broker address; it looks like nats://127.0.0.1:4222.")
    if parts.scheme not in ENCRYPTED and parts.hostname not in LOOPBACK:
        raise SettingsError(f"log.url {server!r} leaves this machine unencrypted. Use tls:// (or wss://).")


def is_encrypted(server: str) -> bool:
    """Whether an address requires encryption."""
    return urlsplit(server).scheme in ENCRYPTED


def tls_context(home: Path) -> ssl.SSLContext:
    """Make the TLS context from the certificates under `home/secrets`.

    Raises:
        BrokerDenied: a file cannot be used, or others can read the key.

    """
    folder = home / "secrets"
    authority, certificate, key = folder / AUTHORITY, folder / CERTIFICATE, folder / KEY
    try:
        context = ssl.create_default_context(cafile=str(authority) if authority.exists() else None)
        if certificate.exists() or key.exists():
            if key.stat().st_mode & 0o077:
                raise BrokerDenied(f"the key at {key} can be read by others. Run: chmod 600 {key}")
            context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise BrokerDenied(
            f"the certificates in {folder} ({AUTHORITY}, {CERTIFICATE}, {KEY}) cannot be used: {error}. Put PEM files there, "
            "or take them away: without them the machine's own list of authorities holds."
        ) from error
    return context
