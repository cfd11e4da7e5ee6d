"""Identifiers and digests. Clock and randomness are arguments, so that nothing here has an effect."""

from hashlib import sha256


def uuid7(unix_ms: int, randomness: bytes) -> str:
    """A UUIDv7 (RFC 9562) as 36 characters: sorts by time. `randomness` is 10 bytes."""
    value = (unix_ms & ((1 << 48) - 1)) << 80
    value |= int.from_bytes(randomness[:10], "big")
    value = value & ~(0xF << 76) | (0x7 << 76)
    value = value & ~(0x3 << 62) | (0x2 << 62)
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def digest_hex(content: bytes) -> str:
    """sha256 as 64 hexadecimal characters: the name of a blob, a page, a file."""
    return sha256(content).hexdigest()
