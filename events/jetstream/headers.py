"""A message's header block as it comes over the wire: `NATS/1.0[ <status>[ <words>]]`, then `Name: value` lines.

See the client protocol of nats-server (HMSG) and its ADR-4. The client library's own parser looks at every character.
"""

_ID = b"\r\nNats-Msg-Id: "
_VERSION = b"NATS/1.0 "
_STATUS_END = len(_VERSION) + 3


def status_in(block: bytes) -> str:
    """The status of a control message, such as `404`; empty for any other message."""
    return block[len(_VERSION) : _STATUS_END].decode("ascii", "replace") if block.startswith(_VERSION) else ""


def event_id_in(block: bytes) -> str:
    """The event's id; empty where there is none."""
    start = block.find(_ID)
    if start < 0:
        return parse_headers(block).get("Nats-Msg-Id", "")
    start += len(_ID)
    return block[start : block.find(b"\r\n", start)].decode("utf-8", "replace")


def parse_headers(block: bytes) -> dict[str, str]:
    """All headers; of several under one name, the last."""
    found = {}
    for line in block.decode("utf-8", "replace").split("\r\n")[1:]:
        name, colon, value = line.partition(":")
        if colon:
            found[name.strip()] = value.strip()
    return found


def format_headers(headers: dict[str, str]) -> bytes:
    """The block for a message to publish.

    Raises:
        ValueError: a line break in a name or value, which would begin another header.

    """
    text = "NATS/1.0\r\n" + "".join([f"{name}: {value}\r\n" for name, value in headers.items()]) + "\r\n"
    lines = len(headers) + 2
    if text.count("\n") != lines or text.count("\r") != lines:
        raise ValueError(f"a header holds a line break: {headers!r}")
    return text.encode()
