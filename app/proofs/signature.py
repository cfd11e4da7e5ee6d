"""Keys and signatures of proofs: Ed25519, by the package `cryptography`, which is an extra."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hindcast.core.errors import HindcastError, SettingsError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

KEY_BYTES = 32


class ProofInvalid(HindcastError):
    """A proof does not hold; the message says which part."""

    exit_code = 3


def private_key(file: Path) -> "Ed25519PrivateKey":
    """The key in a file; made, readable by its owner alone, if there is none.

    Raises:
        SettingsError: the file holds no key, or `cryptography` is not installed.
    """
    module = _ed25519()
    if not file.exists():
        key: Ed25519PrivateKey = module.Ed25519PrivateKey.generate()
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(
            os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii"
        ) as opened:
            opened.write(f"{key.private_bytes_raw().hex()}\n")
        return key
    loaded: Ed25519PrivateKey = module.Ed25519PrivateKey.from_private_bytes(
        _bytes_in(file.read_text(), str(file))
    )
    return loaded


def public_hex(key: "Ed25519PrivateKey") -> str:
    """The public key, as 64 hexadecimal characters."""
    return key.public_key().public_bytes_raw().hex()


def require_signed(content: bytes, signature: bytes, *, public: str) -> None:
    """Raises ProofInvalid if the content was not signed by the owner of this public key: its characters, or a file with them."""
    from cryptography.exceptions import InvalidSignature

    named = Path(public)
    given = named.read_text() if len(public) < 2 * KEY_BYTES and named.is_file() else public
    key = _ed25519().Ed25519PublicKey.from_public_bytes(_bytes_in(given, "--key"))
    try:
        key.verify(signature, content)
    except InvalidSignature:
        raise ProofInvalid(
            "proof.json was not signed by the owner of this key, or was altered afterwards: nothing in it can be relied on"
        ) from None


def _bytes_in(text: str, where: str) -> bytes:
    try:
        found = bytes.fromhex(text.strip())
    except ValueError:
        found = b""
    if len(found) != KEY_BYTES:
        raise SettingsError(
            f"{where} holds no key: expected 64 hexadecimal characters, found {text.strip()[:70]!r}"
        )
    return found


def _ed25519() -> Any:
    """The module of keys, which is not always installed."""
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ModuleNotFoundError as error:
        raise SettingsError(
            "proofs are signed with the package cryptography, which is not installed. Run: pip install 'hindcast[prove]'"
        ) from error
    return ed25519
