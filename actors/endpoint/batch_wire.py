"""Messages of a server's Batch API, as far as they are used: batches, and one line per question and answer."""

from collections.abc import Mapping
from typing import Any

import msgspec

from hindcast.actors.endpoint.chat_wire import MalformedCompletion
from hindcast.actors.endpoint.completion import Trouble
from hindcast.core.structs import decode_json

COMPLETIONS = "/v1/chat/completions"
"""The endpoint of every question in a batch."""
ENDED = frozenset({"completed", "expired", "cancelled"})
"""States of a batch whose answers, as many as exist, are in its files."""
FAILED = "failed"
"""State of a batch that was not begun: the server rejects its file."""


class NotAnswered(Exception):
    """The questions of a batch, or one of them, have no answer."""

    def __init__(self, trouble: Trouble, reason: str, *, settled: bool) -> None:
        """`settled`: there will never be one; else a batch may be running, and paid for, that answers later."""
        super().__init__(reason)
        self.trouble: Trouble = trouble
        self.settled = settled


class BatchStatus(msgspec.Struct):
    """One batch at the server."""

    id: str
    status: str
    output_file_id: str | None = None
    error_file_id: str | None = None
    metadata: dict[str, str] | None = None
    errors: Any = None


class BatchList(msgspec.Struct):
    """One page of batches, the newest first."""

    data: list[BatchStatus]


class UploadedFile(msgspec.Struct):
    """Any object of which only the id is used, such as a file."""

    id: str


class LineError(msgspec.Struct):
    """Why a question has no response."""

    code: str | None = None
    message: str | None = None


class BatchReply(msgspec.Struct):
    """The response to one question."""

    status_code: int
    body: msgspec.Raw = msgspec.Raw(b"null")


class BatchLine(msgspec.Struct):
    """The result of one question."""

    custom_id: str
    response: BatchReply | None = None
    error: LineError | None = None


class _Question(msgspec.Struct):
    custom_id: str


class _Error(msgspec.Struct):
    error: LineError = msgspec.field(default_factory=LineError)


def question_line(question: str, body: Mapping[str, Any]) -> bytes:
    """Encode a question, named `question`, as a line of the input file."""
    line = {"custom_id": question, "method": "POST", "url": COMPLETIONS, "body": body}
    return msgspec.json.encode(line) + b"\n"


def read_lines(content: bytes) -> dict[str, BatchLine]:
    """Parse the answers of a file by question; an unreadable line is an error of its question alone.

    Raises:
        MalformedCompletion: there is content, and no line of it names a question.
    """
    answers, unreadable = {}, ""
    for line in filter(bytes.strip, content.splitlines()):
        try:
            answer = decode_json(line, BatchLine)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            unreadable = str(error)
            if (name := _question_of(line)) is None:
                continue
            answer = BatchLine(custom_id=name, error=LineError(code="unreadable", message=unreadable))
        answers[answer.custom_id] = answer
    if unreadable and not answers:
        raise MalformedCompletion(f"a batch's file holds no line that is an answer: {unreadable}")
    return answers


def _question_of(line: bytes) -> str | None:
    """The question of a line that is otherwise unreadable; None: it names none."""
    try:
        return decode_json(line, _Question).custom_id
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def said_in(body: bytes) -> LineError:
    """The error in a response's body; empty where it has no readable one."""
    try:
        return decode_json(body, _Error).error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return LineError()
