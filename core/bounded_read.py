"""Bounded reads of untrusted data: the one place that reads compressed data and files of unknown size into memory.

A read never trusts a size that the data declares: it counts what it reads, so its memory never exceeds the bound.
"""

import gzip
import zlib
from pathlib import Path
from typing import Protocol

CHUNK_BYTES = 1024 * 1024


class TooLarge(ValueError):
    """The content is longer than the bound for its kind. The message names the content and the bound."""


class ByteStream(Protocol):
    """A source of bytes, such as a file or a decompressor."""

    def read(self, size: int, /) -> bytes:
        """Read up to `size` bytes; empty at the end."""


def read_bounded(stream: ByteStream, *, most_bytes: int, content_name: str) -> bytes:
    """Read the whole stream into memory.

    Raises:
        TooLarge: the stream holds more than `most_bytes`. `content_name` names the content in the message.
    """
    content = bytearray()
    while chunk := stream.read(min(CHUNK_BYTES, most_bytes + 1 - len(content))):
        content += chunk
        if len(content) > most_bytes:
            raise TooLarge(
                f"{content_name} holds more than {most_bytes} bytes, which is the most that is read"
            )
    return bytes(content)


def read_file_bounded(path: Path, *, most_bytes: int) -> bytes:
    """Read a file, decompressed if its name ends in `.gz`.

    Raises:
        TooLarge: the decompressed content is longer than `most_bytes`.
        OSError, EOFError: the file cannot be read, or its compressed data is damaged.
    """
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        try:
            return read_bounded(file, most_bytes=most_bytes, content_name=str(path))
        except zlib.error as error:
            raise OSError(f"its compressed data is damaged: {error}") from error
