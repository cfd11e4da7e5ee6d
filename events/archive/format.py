"""The format of a segment's bytes. Pure functions: nothing here opens a file.

    segment  = prefix header frame*
    prefix   = magic (8 bytes) | size of header (u32) | crc32c of header (u32)
    header   = MessagePack map: format, run, first, chain, digest
    frame    = crc32c (u32) | size of body (u32) | first position (u64) | events (u32) | body | chain (32 bytes)
    body     = zstd of a MessagePack array of [position, subject, id, stored bytes]
    chain    = sha256(chain before | everything of the frame before its chain); for a segment's first frame the chain
               before is sha256(chain before the segment | prefix | header)

All numbers are little-endian. The crc covers what follows it up to the chain, so that a torn or damaged frame is detected
without reading anything else. The chain links every frame to all frames before it, through all segments.
"""

import struct
from collections.abc import Iterator, Sequence
from hashlib import sha256
from io import BytesIO
from typing import Annotated, NamedTuple

import msgspec
import zstandard
from google_crc32c import value as crc32c

from hindcast.core.bounded_read import TooLarge, read_bounded
from hindcast.core.structs import msgpack_decoder
from hindcast.events.archive.errors import ArchiveUnknown
from hindcast.events.codec import UNDECODABLE
from hindcast.events.envelope import Stored

FORMAT = 1
MAGIC = b"HINDCAST"
FRAME_EVENTS = 256
"""Most events in a frame."""
FRAME_BYTES = 4 * 1024 * 1024
"""Size of events at which a frame is closed; one event may have 508 KiB."""
LARGEST_BODY_BYTES = 2 * FRAME_BYTES
"""Most bytes of an uncompressed body; more is damage."""
LARGEST_WINDOW_BYTES = LARGEST_BODY_BYTES
"""Most bytes of a decompressor's window."""
LEVEL = 6
"""Compression level of zstd. An archive is written once, at the pace of a run; reading costs the same at any level."""
CHAIN_BYTES = 32
START = bytes(CHAIN_BYTES)
"""Chain and rolling digest before the first event."""

_PREFIX = struct.Struct("<8sII")
_CRC = struct.Struct("<I")
_FRAME = struct.Struct("<IQI")
FRAME_HEAD_BYTES = _CRC.size + _FRAME.size


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """Header of a segment."""

    format: int
    run: str
    first: int
    """Position of its first event."""
    chain: bytes
    """Chain value before it."""
    digest: bytes
    """Rolling digest of the log before it (`events.log.hash_chain`)."""


class ParsedHeader(NamedTuple):
    """A segment's header as read back."""

    header: Header
    size: int
    """Bytes of prefix and header: offset of the first frame."""
    chain: bytes
    """Chain value that the first frame continues."""


class Frame(NamedTuple):
    """Location of a frame in its file."""

    first: int
    """Position of its first event."""
    events: int
    """Number of its events."""
    offset: int
    size: int
    """Bytes, including its chain value."""
    chain: bytes
    """Chain value after it."""

    @property
    def last(self) -> int:
        """Position of its last event."""
        return self.first + self.events - 1

    @property
    def end(self) -> int:
        """Offset of the next frame."""
        return self.offset + self.size


class NotWhole(Exception):
    """The bytes are not a whole header or frame."""


class _Row(msgspec.Struct, frozen=True, array_like=True, gc=False):
    position: int
    subject: str
    id: str
    data: bytes


_encoder = msgspec.msgpack.Encoder()
_header_decoder = msgpack_decoder(Header)
_rows_decoder = msgpack_decoder(Annotated[list[_Row], msgspec.Meta(max_length=FRAME_EVENTS)])


def encode_header(header: Header) -> tuple[bytes, bytes]:
    """Encode a segment's prefix and header; also return the chain value that its first frame continues."""
    content = _encoder.encode(header)
    opening = _PREFIX.pack(MAGIC, len(content), crc32c(content)) + content
    return opening, sha256(header.chain + opening).digest()


def decode_header(content: bytes | memoryview) -> ParsedHeader:
    """Decode the header of a segment.

    Raises:
        NotWhole: it is cut or damaged.
        ArchiveUnknown: it has a newer format.

    """
    if len(content) < _PREFIX.size:
        raise NotWhole("its header is cut")
    magic, size, crc = _PREFIX.unpack_from(content)
    if magic != MAGIC:
        raise NotWhole(f"it does not begin with {MAGIC.decode()}")
    end = _PREFIX.size + size
    if end > len(content):
        raise NotWhole("its header is cut")
    body = bytes(content[_PREFIX.size : end])
    if crc32c(body) != crc:
        raise NotWhole("its header has another crc32c")
    try:
        header = _header_decoder.decode(body)
    except UNDECODABLE as error:
        raise NotWhole(f"its header does not decode ({error})") from error
    if header.format > FORMAT:
        raise ArchiveUnknown(
            f"the archive of run {header.run} has format {header.format}; this Hindcast reads up to {FORMAT}. Update Hindcast."
        )
    return ParsedHeader(header, end, sha256(header.chain + bytes(content[:end])).digest())


def encode_frame(events: Sequence[Stored], *, chain: bytes) -> tuple[bytes, bytes]:
    """Encode consecutive events as a frame that continues `chain`; also return the chain value after it."""
    rows = [_Row(stored.position, stored.subject, stored.id, stored.data) for stored in events]
    body = zstandard.ZstdCompressor(level=LEVEL).compress(_encoder.encode(rows))
    checked = _FRAME.pack(len(body), events[0].position, len(events)) + body
    content = _CRC.pack(crc32c(checked)) + checked
    after = sha256(chain + content).digest()
    return content + after, after


def frame_at(content: bytes | memoryview, offset: int) -> Frame:
    """Read the head of the frame at an offset. The only check is that the frame lies within the content.

    Raises:
        NotWhole: the content ends before the frame.

    """
    if offset + FRAME_HEAD_BYTES > len(content):
        raise NotWhole("a frame's head is cut")
    size, first, events = _FRAME.unpack_from(content, offset + _CRC.size)
    frame_size = FRAME_HEAD_BYTES + size + CHAIN_BYTES
    if offset + frame_size > len(content):
        raise NotWhole("a frame is cut, or its size damaged")
    end = offset + frame_size
    return Frame(first, events, offset, frame_size, bytes(content[end - CHAIN_BYTES : end]))


def check_frame(content: bytes | memoryview, frame: Frame, *, chain: bytes) -> None:
    """Check a frame's crc and chain.

    Raises:
        NotWhole: the crc is wrong, or the frame does not continue `chain`.

    """
    checked = content[frame.offset : frame.end - CHAIN_BYTES]
    if crc32c(bytes(checked[_CRC.size :])) != _CRC.unpack_from(checked)[0]:
        raise NotWhole("a frame has another crc32c")
    after = sha256(chain)
    after.update(checked)
    if after.digest() != frame.chain:
        raise NotWhole("a frame does not continue the chain")


def frames_from(content: bytes | memoryview, offset: int, *, first: int, chain: bytes) -> Iterator[Frame]:
    """Yield whole, checked frames in order, up to the end of the content.

    Raises:
        NotWhole: other bytes follow the last whole frame.

    """
    while offset < len(content):
        frame = frame_at(content, offset)
        check_frame(content, frame, chain=chain)
        if frame.first != first or frame.events < 1:
            raise NotWhole(f"a frame begins at position {frame.first} where {first} is due")
        yield frame
        offset, first, chain = frame.end, frame.last + 1, frame.chain


def decode_frame(content: bytes | memoryview, *, frame: Frame) -> list[Stored]:
    """Decode the events of a frame; `content` is the frame alone.

    Raises:
        NotWhole: its crc is wrong, or it has other positions than its head says.

    """
    checked = bytes(content[_CRC.size : -CHAIN_BYTES])
    if len(content) != frame.size or crc32c(checked) != _CRC.unpack_from(content)[0]:
        raise NotWhole("a frame has another crc32c")
    try:
        # streamed: `decompress` allocates the size that the data declares, whatever `max_output_size` says
        decompressor = zstandard.ZstdDecompressor(max_window_size=LARGEST_WINDOW_BYTES)
        with decompressor.stream_reader(BytesIO(checked[_FRAME.size :])) as stream:
            body = read_bounded(stream, most_bytes=LARGEST_BODY_BYTES, content_name="the body of a frame")
        rows = _rows_decoder.decode(body)
    except (zstandard.ZstdError, MemoryError, TooLarge, *UNDECODABLE) as error:
        raise NotWhole(f"a frame does not decode ({error})") from error
    if [row.position for row in rows] != list(range(frame.first, frame.last + 1)):
        raise NotWhole("a frame holds other positions than its head names")
    return [Stored(row.position, row.subject, row.data, row.id) for row in rows]


def split(events: Sequence[Stored]) -> Iterator[Sequence[Stored]]:
    """Split events into frames."""
    start = size = 0
    for index, stored in enumerate(events):
        size += len(stored.data)
        if index - start + 1 == FRAME_EVENTS or size >= FRAME_BYTES:
            yield events[start : index + 1]
            start, size = index + 1, 0
    if start < len(events):
        yield events[start:]
