"""Documents of demonstrated episodes out of files. Whatever does not fit is refused, naming file, line and key.

`jsonl`: a document a line (`app.exports.document`), as in `episodes.jsonl` of an export. `atif`: a trajectory in a file, or
a folder of such files.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import msgspec

from hindcast.app.exports.document import EpisodeDocument
from hindcast.app.exports.writer import MANIFEST
from hindcast.core.errors import HindcastError

Format = Literal["jsonl", "atif"]
FORMATS: tuple[Format, ...] = get_args(Format)
LARGEST = 2**63 - 1
"""As the columns of the read model; an event could hold one bit more."""
Kind = TypeVar("Kind", bound=msgspec.Struct)
_AT = re.compile(r" - at `\$\.?(.*)`$")


class ImportRefused(HindcastError):
    """A file holds something that cannot become a demonstration; nothing was appended."""

    exit_code = 2


class DocumentError(Exception):
    """What is wrong with a document: at which key, and why."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(f"{key}: {why}" if key else why)


class LocatedDocument(NamedTuple):
    """A document and where it stands."""

    where: str
    document: EpisodeDocument


def read_documents(path: Path, format_name: Format) -> Iterator[LocatedDocument]:
    """The documents in their order, one at a time.

    Raises:
        ImportRefused: the file cannot be read, or holds something else.

    """
    from hindcast.app.imports.atif import document_of_trajectory

    found = _lines(path) if format_name == "jsonl" else _files(path)
    for where, content in found:
        try:
            if format_name == "jsonl":
                yield LocatedDocument(where, decoded(content, EpisodeDocument))
            else:
                yield LocatedDocument(where, document_of_trajectory(content))
        except DocumentError as wrong:
            raise refused(where, wrong) from wrong


def refused(where: str, wrong: DocumentError) -> ImportRefused:
    """As it is told to the user."""
    return ImportRefused(
        f"{where}: {wrong}. Nothing was appended; docs/exports.md says what a demonstration is"
    )


def decoded(content: bytes, kind: type[Kind]) -> Kind:
    """A document of a kind, with nothing in it that the kind has no place for. Raises Wrong."""
    try:
        found = msgspec.json.decode(content, type=kind, strict=True)
        plain = msgspec.json.decode(content)
        long = next(_too_long(plain, ""), None)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise from_validation(error) from error
    if long is not None:
        raise DocumentError(long, "this integer does not fit into 64 bits with a sign")
    unplaced = next(_unplaced(plain, found, ""), None)
    if unplaced is not None:
        raise DocumentError(unplaced, "there is no such key")
    return found


def from_validation(error: Exception) -> DocumentError:
    """What msgspec says, as key and reason."""
    text = str(error)
    at = _AT.search(text)
    return DocumentError(at[1], text[: at.start()]) if at is not None else DocumentError("", text)


def _unplaced(plain: Any, found: Any, key: str) -> Iterator[str]:
    """Keys of objects that structures do not know, at any depth."""
    if isinstance(found, msgspec.Struct) and isinstance(plain, dict):
        for name, value in plain.items():
            at = f"{key}.{name}" if key else name
            if name not in found.__struct_fields__:
                yield at
            else:
                yield from _unplaced(value, getattr(found, name), at)
    elif isinstance(found, list | tuple) and isinstance(plain, list):
        for place, (value, inner) in enumerate(zip(plain, found, strict=True)):
            yield from _unplaced(value, inner, f"{key}[{place}]")


def _too_long(plain: Any, key: str) -> Iterator[str]:
    """Where integers beyond `LARGEST` stand, at any depth."""
    if isinstance(plain, int) and not -LARGEST <= plain <= LARGEST:
        yield key
    elif isinstance(plain, dict):
        for name, value in plain.items():
            yield from _too_long(value, f"{key}.{name}" if key else name)
    elif isinstance(plain, list):
        for place, value in enumerate(plain):
            yield from _too_long(value, f"{key}[{place}]")


def _lines(path: Path) -> Iterator[tuple[str, bytes]]:
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield f"{path}, line {number}", line
    except OSError as error:
        raise ImportRefused(f"{path} cannot be read: {error.strerror}") from error


def _files(path: Path) -> Iterator[tuple[str, bytes]]:
    files = sorted(one for one in path.glob("*.json") if one.name != MANIFEST) if path.is_dir() else [path]
    if not files:
        raise ImportRefused(f"{path} holds no trajectory (*.json)")
    for file in files:
        try:
            yield str(file), file.read_bytes()
        except OSError as error:
            raise ImportRefused(f"{file} cannot be read: {error.strerror}") from error
