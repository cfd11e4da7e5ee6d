"""Reads documents of demonstrated episodes from files. Errors name file, line and key.

`jsonl`: one document per line (`app.exports.document`), as in `episodes.jsonl` of an export. `atif-pages`: a file with a
trajectory of ours, or a folder of such files. The formats of `WHOLE_RUNS` are runs of other systems, each read by a module of
its own.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from hindcast.app.exports.document import EpisodeDocument
from hindcast.app.exports.export import MANIFEST
from hindcast.app.imports import atif_trajectories, inspect_log, nemo_gym, verifiers_traces
from hindcast.app.imports.atif import document_of_trajectory
from hindcast.app.imports.conversation import Conversation
from hindcast.app.imports.decoder import DocumentError, decoded
from hindcast.app.imports.recorded_run import Located
from hindcast.core.errors import HindcastError

RunFormat = Literal["atif", "inspect", "nemo-gym", "verifiers"]
Format = Literal["jsonl", "atif-pages"] | RunFormat
WHOLE_RUNS: Mapping[str, Callable[[Path], Located]] = {
    "atif": atif_trajectories.conversations_of,
    "inspect": inspect_log.conversations_of,
    "nemo-gym": nemo_gym.conversations_of,
    "verifiers": verifiers_traces.conversations_of,
}
"""Readers of other systems' runs by format."""


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
        if format_name in WHOLE_RUNS:
            yield from _grouped(path, WHOLE_RUNS[format_name])
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
