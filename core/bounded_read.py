"""Reads what others wrote up to a bound: the one place that takes compressed data, and files of unknown size, into memory.

A size that the data itself declares is never believed, and a file is measured by reading it: the memory that a read takes
is its bound at most, whatever the content claims.
"""

import gzip
import zlib
from pathlib import Path
from typing import Protocol

CHUNK_BYTES = 1024 * 1024


class TooLarge(ValueError):
    """The content is longer than what is read of its kind. Says what, the bound, and that nothing more was read."""


class ByteStream(Protocol):
    """What bytes can be read from: a file, a decompressor."""

    def read(self, size: int, /) -> bytes:
        """Up to `size` bytes; empty at the end."""
        ...


def read_bounded(stream: ByteStream, *, most_bytes: int, what: str) -> bytes:
    """Everything from the stream.

    Raises:
        TooLarge: it holds more than `most_bytes`. `what` names the content in the message.

    """
    content = bytearray()
    while part := stream.read(min(CHUNK_BYTES, most_bytes + 1 - len(content))):
        content += part
        if len(content) > most_bytes:
            raise TooLarge(f"{what} holds more than {most_bytes} bytes, which is the most that is read")
    return bytes(content)


def read_file_bounded(path: Path, *, most_bytes: int) -> bytes:
    """A file's content, decompressed where its name ends in `.gz`.

    Raises:
        TooLarge: it holds more than `most_bytes`; of a compressed file, decompressed.
        OSError, EOFError: it cannot be read, or its compressed data is damaged.

    """
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        try:
            return read_bounded(file, most_bytes=most_bytes, what=str(path))
        except zlib.error as error:
            raise OSError(f"its compressed data is damaged: {error}") from error
