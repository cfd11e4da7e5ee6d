"""Reads the samples of Inspect's logs (`.eval`, log version 2) as conversations: the inverse of `app.exports.inspect_log`.

Every answer of the model in a sample's messages is a turn. Messages that the dataset gives (source `input`), such as
few-shot answers, belong to the prompt. A sample that ended with an error, was invalidated, or has no answer becomes an
abandoned episode, so it never counts as a failure. Only text is read.

Source: inspect.aisi.org.uk/eval-logs.html, and `inspect_ai.log.EvalSample` of inspect-ai 0.3.285. Nothing of inspect-ai is
imported. inspect-ai compresses the parts of a log with Zstandard, which Python's zipfile cannot read before 3.14.
"""

import json
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import BadZipFile, ZipFile, ZipInfo

import pyarrow

from hindcast.app.imports.conversation import Conversation, Turn
from hindcast.app.imports.decoder import DocumentError
from hindcast.app.imports.importer import Importer
from hindcast.app.imports.recorded_run import MAX_STEPS, checked, family_of, integer, seed_of
from hindcast.core.domain.evidence import Evidence
from hindcast.core.domain.task import Task

SOURCE = "inspect"
LOG_VERSION = 2
LARGEST_PART_BYTES = 1 << 30
"""Largest part of a log that is read: a file from elsewhere could unpack to any size."""
_ZSTANDARD = 93
"""Compression method of a zip file, APPNOTE 6.3.9, section 4.4.5."""
_LOCAL_HEADER_BYTES = 30
_SAMPLE = re.compile(r"samples/.+\.json")


def conversations_of(path: Path) -> Iterator[tuple[str, Conversation]]:
    """Yield every sample of a log with its place.

    Raises:
        DocumentError: the file is no log of this version, or a sample holds something else than text.
        OSError: the file cannot be read.

    """
    try:
        with path.open("rb") as file, ZipFile(file) as archive:
            header = _part(archive, file, "header.json")
            if header.get("version") != LOG_VERSION:
                raise DocumentError("version", f"{header.get('version')!r} is not {LOG_VERSION}")
            for name in archive.namelist():
                if _SAMPLE.fullmatch(name):
                    yield name, _conversation(_part(archive, file, name), header, name)
    except BadZipFile as error:
        raise DocumentError("", f"this is no log of Inspect ({error})") from error


def _part(archive: ZipFile, file: BinaryIO, name: str) -> dict[str, Any]:
    """Decode a JSON file of the log. NaN and infinite numbers, which JSON lacks, become None."""
    try:
        info = archive.getinfo(name)
    except KeyError as error:
        raise DocumentError(name, "missing: the log is incomplete, or not one of Inspect") from error
    if info.file_size > LARGEST_PART_BYTES:
        raise DocumentError(name, f"it has {info.file_size} bytes, {LARGEST_PART_BYTES} are read")
    try:
        content = _unpacked(file, info) if info.compress_type == _ZSTANDARD else archive.read(info)
        found = json.loads(content, parse_constant=lambda _: None, parse_int=integer)
    except (ValueError, OSError, struct.error, NotImplementedError, RecursionError) as error:
        raise DocumentError(name, f"it cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise DocumentError(name, "expected an object")
    return found


def _unpacked(file: BinaryIO, info: ZipInfo) -> bytes:
    """The content of a part that is compressed with Zstandard."""
    file.seek(info.header_offset)
    *_, name_bytes, extra_bytes = struct.unpack("<26xHH", file.read(_LOCAL_HEADER_BYTES))
    file.seek(name_bytes + extra_bytes, 1)
    packed = pyarrow.BufferReader(file.read(info.compress_size))
    return pyarrow.CompressedInputStream(packed, "zstd").read(info.file_size)  # type: ignore[no-any-return]


def _conversation(sample: Mapping[str, Any], header: Mapping[str, Any], name: str) -> Conversation:
    return checked(partial(_converted, sample, header), name, "sample of Inspect")


def _converted(sample: Mapping[str, Any], header: Mapping[str, Any]) -> Conversation:
    run, name = header["eval"], sample["id"]
    messages = [_message(one, f"messages[{at}]") for at, one in enumerate(sample["messages"])]
    turns, new = [], list[dict[str, Any]]()
    for message, recorded in zip(messages, sample["messages"], strict=True):
        if message["role"] == "assistant" and recorded.get("source") != "input":
            turns.append(Turn(new=tuple(new), answer=message))
            new = []
        else:
            new.append(message)
    task = str(run["task"])
    limit = sample.get("limit") or {}
    failure = _failure(sample) or ("" if turns else "the log has no answer of the model")
    return Conversation(
        task=Task(
            environment="agent",
            family=family_of(task, SOURCE),
            seed=seed_of(name),
            instruction=_instruction(sample["input"]),
            goal={"source": SOURCE, "task": task, "sample": name, "target": sample["target"]},
            max_steps=(run.get("config") or {}).get("message_limit") or MAX_STEPS,
        ),
        turns=tuple(turns),
        rest=tuple(new),
        reason="max_steps" if limit else "done",
        failure=failure,
        evidence=Evidence(
            answer=(sample.get("output") or {}).get("completion") or (turns[-1].text if turns else None),
            final_url="",
            probes={
                "source": SOURCE,
                "evaluation": run.get("eval_id"),
                "model": run.get("model"),
                "epoch": sample.get("epoch"),
                "limit": limit.get("type"),
                "scores": {
                    scorer: {part: score.get(part) for part in ("value", "answer", "explanation")}
                    for scorer, score in (sample.get("scores") or {}).items()
                },
            },
        ),
        duration_ms=1000.0 * (sample.get("total_time") or 0.0),
    )


def _failure(sample: Mapping[str, Any]) -> str:
    """Why a sample does not count; empty if it does."""
    if sample.get("error"):
        return str(sample["error"].get("message", "an error"))
    if sample.get("invalidation"):
        return f"invalidated: {sample['invalidation'].get('reason') or 'no reason is given'}"
    return ""


def _instruction(given: str | Sequence[Mapping[str, Any]]) -> str:
    """The last text that the dataset gives as the user's."""
    if isinstance(given, str):
        return given
    return next((_text(one["content"], "input") for one in reversed(given) if one["role"] == "user"), "")


def _message(given: Mapping[str, Any], key: str) -> dict[str, Any]:
    """A message in OpenAI's format."""
    message: dict[str, Any] = {
        "role": given["role"],
        "content": _text(given.get("content"), f"{key}.content"),
    }
    if given.get("tool_calls"):
        message["tool_calls"] = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["function"], "arguments": json.dumps(call["arguments"])},
            }
            for call in given["tool_calls"]
        ]
    if given.get("tool_call_id"):
        message["tool_call_id"] = given["tool_call_id"]
    if given.get("error"):
        message["content"] = message["content"] or str(given["error"].get("message", ""))
    return message


def _text(content: Any, key: str) -> str:
    """The text of a message: reasoning is written as `<think>…</think>`. Raises DocumentError for anything but text."""
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for at, part in enumerate(content):
        if part["type"] == "text":
            texts.append(part["text"])
        elif part["type"] == "reasoning":
            shown = part.get("summary") if part.get("redacted") else part["reasoning"]
            texts.append(f"<think>{shown or ''}</think>")
        else:
            raise DocumentError(f"{key}[{at}]", f"a part of type {part['type']!r}: only text can be imported")
    return "\n".join(texts)


IMPORTER = Importer(reads="a log of Inspect (`.eval`)", conversations=conversations_of, judge="inspect")
