"""Keys and signatures of proofs: Ed25519, by the package `cryptography`."""

import os
import re
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from hindcast.core.errors import HindcastError, SettingsError

KEY_BYTES = 32
_HEX = re.compile(f"[0-9a-fA-F]{{{2 * KEY_BYTES}}}")


class ProofInvalid(HindcastError):
    """A proof does not hold; the message says which part."""

    exit_code = 3


def private_key(file: Path) -> Ed25519PrivateKey:
    """The key in a file; made, readable by its owner alone, if there is none.

    Raises:
        SettingsError: the file holds no key.
    """
    if not file.exists():
        key = Ed25519PrivateKey.generate()
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(
            os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii"
        ) as opened:
            opened.write(f"{key.private_bytes_raw().hex()}\n")
        return key
    return Ed25519PrivateKey.from_private_bytes(_bytes_in(_text_of(file), str(file)))


def public_hex(key: Ed25519PrivateKey) -> str:
    """The public key, as 64 hexadecimal characters."""
    return key.public_key().public_bytes_raw().hex()


def require_signed(content: bytes, signature: bytes, *, public: str) -> None:
    """Raises ProofInvalid if the content was not signed by the owner of this public key: its characters, or a file with them."""
    given = _text_of(Path(public)) if _HEX.fullmatch(public) is None and Path(public).is_file() else public
    key = Ed25519PublicKey.from_public_bytes(_bytes_in(given, "--key"))
    try:
        key.verify(signature, content)
    except InvalidSignature:
        raise ProofInvalid(
            "proof.json was not signed by the owner of this key, or was altered afterwards: nothing in it can be relied on"
        ) from None


def _text_of(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")


def _bytes_in(text: str, where: str) -> bytes:
    # the text may be a secret, so that no message shows it
    found = text.strip()
    if _HEX.fullmatch(found) is None:
        raise SettingsError(
            f"{where} holds no key: expected {2 * KEY_BYTES} hexadecimal characters, found {len(found)} characters"
        )
    return bytes.fromhex(found)
