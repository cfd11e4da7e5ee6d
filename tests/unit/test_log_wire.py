"""What comes over the wire: header blocks, and messages taken out of whatever pieces the socket gives."""

from importlib.metadata import version
from random import Random

import pytest
from nats.errors import ProtocolError

from hindcast.events.jetstream.connection import Connection
from hindcast.events.jetstream.wire import format_headers, parse_headers, status_in

BLOCK = b"NATS/1.0\r\nNats-Batch-Id: b\r\nNats-Msg-Id: e-7\r\nodd:value: x\r\n\r\n"


def test_the_client_library_is_the_one_whose_private_methods_were_read() -> None:
    assert version("nats-py") == "2.16.0"


def test_headers_are_read_as_they_were_written() -> None:
    headers = {"Nats-Msg-Id": "e-7", "traceparent": "00-ä-01", "Nats-Batch-Sequence": "3"}
    assert parse_headers(format_headers(headers)) == headers
    assert parse_headers(BLOCK) == {"Nats-Batch-Id": "b", "Nats-Msg-Id": "e-7", "odd": "value: x"}


@pytest.mark.parametrize("value", ["e\r\nNats-Expected-Last-Sequence: 0", "e\n", "e\r"])
def test_a_value_cannot_begin_another_header(value: str) -> None:
    with pytest.raises(ValueError, match="line break"):
        format_headers({"Nats-Msg-Id": value})


def test_only_control_messages_have_a_status() -> None:
    assert status_in(b"NATS/1.0 404 No Messages\r\n\r\n") == "404"
    assert status_in(b"NATS/1.0 100\r\n\r\n") == "100"
    assert status_in(BLOCK) == status_in(b"") == ""


def frame(sid: int, number: int, content: bytes) -> bytes:
    block = format_headers({"Nats-Msg-Id": str(number)})
    line = f"HMSG run.r.x {sid} $JS.ACK.{number} {len(block)} {len(block) + len(content)}\r\n"
    return line.encode() + block + content + b"\r\n"


def plain(sid: int, content: bytes) -> bytes:
    return f"MSG run.r.x {sid} {len(content)}\r\n".encode() + content + b"\r\n"


@pytest.mark.parametrize("largest", [1, 7, 60, 5000])
async def test_every_message_arrives_once_and_in_order_however_the_bytes_are_cut(largest: int) -> None:
    random = Random(largest)
    connection = Connection("reader")
    taken: list[tuple[str, bytes]] = []
    connection.receivers[5] = lambda _subject, _reply, content, block: taken.append(
        (parse_headers(block).get("Nats-Msg-Id", ""), content)
    )
    expected, wire = [], b""
    for number in range(60):
        content = random.randbytes(random.choice((0, 3, 400))) + b"\r\nHMSG run.r.x 5 r 1 2\r\n"
        expected.append((str(number), content))
        wire += frame(5, number, content)
        wire += random.choice((b"", b"+OK\r\n", plain(5, b"late"), plain(6, b"other"), frame(6, 0, b"other")))
    expected_plain = wire.count(plain(5, b"late"))
    while wire:
        size = random.randint(1, largest)
        piece, wire = wire[:size], wire[size:]
        await connection._ps.parse(piece)
    assert [one for one in taken if one[1] != b"late"] == expected
    assert len(taken) == len(expected) + expected_plain
    assert connection.stats["in_msgs"] >= len(taken)
    assert connection._ps.buf == b""


async def test_a_receiver_that_fails_does_not_stop_the_others() -> None:
    connection = Connection("reader")
    taken: list[bytes] = []

    def fail(*_: bytes) -> None:
        raise ValueError("no")

    connection.receivers[1] = fail
    connection.receivers[2] = lambda _subject, _reply, content, _block: taken.append(content)
    await connection._ps.parse(frame(1, 0, b"a") + frame(2, 1, b"b") + plain(1, b"c") + plain(2, b"d"))
    assert taken == [b"b", b"d"]


async def test_a_malformed_message_is_left_to_the_library_which_connects_anew() -> None:
    connection = Connection("reader")
    taken: list[bytes] = []
    connection.receivers[2] = lambda _subject, _reply, content, _block: taken.append(content)
    with pytest.raises(ProtocolError):
        await connection._ps.parse(frame(2, 0, b"a") + b"HMSG run.r.x 2 r -4 x\r\n")
    assert taken == [b"a"]
