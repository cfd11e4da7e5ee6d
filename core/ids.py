"""Identifiers and digests: pure functions, with clock and randomness as arguments."""

from hashlib import sha256


def uuid7(unix_ms: int, randomness: bytes) -> str:
    """Make a UUIDv7 (RFC 9562): 36 characters that sort by time. `randomness` is 10 bytes."""
    time = f"{unix_ms & ((1 << 48) - 1):012x}"
    random_hex = randomness[:10].hex()
    variant = "89ab"[int(random_hex[4], 16) & 3]
    return f"{time[:8]}-{time[8:]}-7{random_hex[1:4]}-{variant}{random_hex[5:8]}-{random_hex[8:]}"


def digest_hex(content: bytes) -> str:
    """Compute the sha256 as 64 hexadecimal characters: the name of a blob, page or file."""
    return sha256(content).hexdigest()
