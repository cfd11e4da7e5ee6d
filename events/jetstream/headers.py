"""Parser of a message's header block: `NATS/1.0[ <status>[ <words>]]`, then `Name: value` lines.

See the client protocol of nats-server (HMSG) and its ADR-4. The client library's own parser is slow: it reads every character.
"""

_VERSION = b"NATS/1.0 "
_STATUS_END = len(_VERSION) + 3


def status_in(block: bytes) -> str:
    """Return the status of a control message, such as `404`; empty for any other message."""
    return block[len(_VERSION) : _STATUS_END].decode("ascii", "replace") if block.startswith(_VERSION) else ""


def parse_headers(block: bytes) -> dict[str, str]:
    """Parse all headers; if a name occurs several times, the last one counts."""
    found = {}
    for line in block.decode("utf-8", "replace").split("\r\n")[1:]:
        name, colon, value = line.partition(":")
        if colon:
            found[name.strip()] = value.strip()
    return found


def format_headers(headers: dict[str, str]) -> bytes:
    """Format the header block of a message to publish.

    Raises:
        ValueError: a name or value contains a line break, which would begin another header.

    """
    text = "NATS/1.0\r\n" + "".join([f"{name}: {value}\r\n" for name, value in headers.items()]) + "\r\n"
    lines = len(headers) + 2
    if text.count("\n") != lines or text.count("\r") != lines:
        raise ValueError(f"a header holds a line break: {headers!r}")
    return text.encode()
