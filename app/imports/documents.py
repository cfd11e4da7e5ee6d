"""Reads documents of demonstrated episodes from files. Errors name file, line and key.

`jsonl`: one document per line (`app.exports.document`), as in `episodes.jsonl` of an export. `atif-pages`: a file with a
trajectory of ours, or a folder of such files. Every other format is a run of another system, read by an importer.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from hindcast.app.exports.document import EpisodeDocument
from hindcast.app.exports.export import MANIFEST
from hindcast.app.imports.atif import document_of_trajectory
from hindcast.app.imports.conversation import Conversation
from hindcast.app.imports.decoder import DocumentError, decoded
from hindcast.app.imports.importer import find_importer
from hindcast.app.imports.recorded_run import Located
from hindcast.core.errors import HindcastError

DEMONSTRATIONS = ("jsonl", "atif-pages")
"""Formats of demonstrations."""


class ImportRefused(HindcastError):
    """A file contains something that cannot become a demonstration; nothing was appended."""

    exit_code = 2


class LocatedDocument(NamedTuple):
    """A document and its location: file, and line if the file has several."""

    where: str
    document: EpisodeDocument | Conversation


def read_documents(path: Path, format_name: str) -> Iterator[LocatedDocument]:
    """Yield the documents in order, one at a time.

    Raises:
        ImportRefused: the file cannot be read, or contains something else.
        PluginError: there is no such format.

    """
    where = str(path)
    try:
        if format_name not in DEMONSTRATIONS:
            yield from _grouped(path, find_importer(format_name).conversations)
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
    return ImportRefused(f"{where}: {wrong}. Nothing was appended; docs/exports.md says what can be imported")


def _grouped(path: Path, read: Callable[[Path], Located]) -> Iterator[LocatedDocument]:
    """Number the members of each group. The file is read twice, because a group's size is known only at its end."""
    sizes = Counter((one.group, one.task.id) for _, one in read(path) if one.group)
    members: Counter[tuple[str, str]] = Counter()
    for place, one in read(path):
        group = (one.group, one.task.id)
        if one.group:
            one = msgspec.structs.replace(one, member=members[group], group_size=sizes[group])
            members[group] += 1
        yield LocatedDocument(f"{path}, {place}", one)


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
