"""Reads documents of demonstrated episodes from files. Errors name file, line and key.

`jsonl`: one document per line (`app.exports.document`), as in `episodes.jsonl` of an export. `atif`: a file with a
trajectory, or a folder of such files. `inspect`: a log of Inspect (`app.imports.inspect_log`).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from hindcast.app.exports.document import EpisodeDocument
from hindcast.app.exports.export import MANIFEST
from hindcast.app.imports.atif import document_of_trajectory
from hindcast.app.imports.conversation import Conversation
from hindcast.app.imports.decoder import DocumentError, decoded
from hindcast.app.imports.inspect_log import conversations_of
from hindcast.core.errors import HindcastError

Format = Literal["jsonl", "atif", "inspect"]
FORMATS: tuple[Format, ...] = get_args(Format)


class ImportRefused(HindcastError):
    """A file contains something that cannot become a demonstration; nothing was appended."""

    exit_code = 2


class LocatedDocument(NamedTuple):
    """A document and its location: file, and line if the file has several."""

    where: str
    document: EpisodeDocument | Conversation


def read_documents(path: Path, format_name: Format) -> Iterator[LocatedDocument]:
    """Yield the documents in order, one at a time.

    Raises:
        ImportRefused: the file cannot be read, or contains something else.

    """
    where = str(path)
    try:
        if format_name == "inspect":
            for place, conversation in conversations_of(path):
                yield LocatedDocument(place, conversation)
            return
        for where, content in _lines(path) if format_name == "jsonl" else _files(path):
            document = (
                decoded(content, EpisodeDocument)
                if format_name == "jsonl"
                else document_of_trajectory(content)
            )
            yield LocatedDocument(where, document)
    except DocumentError as wrong:
        raise refused(where, wrong) from wrong
    except OSError as error:
        raise ImportRefused(f"{path} cannot be read: {error.strerror}") from error


def refused(where: str, wrong: DocumentError) -> ImportRefused:
    """Convert the error of a document to a message for the user."""
    return ImportRefused(
        f"{where}: {wrong}. Nothing was appended; docs/exports.md says what a demonstration is"
    )


def _lines(path: Path) -> Iterator[tuple[str, bytes]]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield f"{path}, line {number}", line


def _files(path: Path) -> Iterator[tuple[str, bytes]]:
    files = sorted(one for one in path.glob("*.json") if one.name != MANIFEST) if path.is_dir() else [path]
    if not files:
        raise ImportRefused(f"{path} holds no trajectory (*.json)")
    for file in files:
        yield str(file), file.read_bytes()
