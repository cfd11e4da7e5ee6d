"""Store a program's output in rotated files without blocking the program: on a full disk the output is lost.

honcho, and everything with it, ends when its output cannot be written. So honcho writes into a pipe, and a thread reads
the pipe and writes the file. A full file is renamed to `<name>.1`, that one to `<name>.2`, and the oldest is deleted.
"""

from collections import deque
from contextlib import suppress
from logging import LogRecord, makeLogRecord
from logging.handlers import RotatingFileHandler
from pathlib import Path
from threading import Thread
from typing import IO

KEPT_BYTES = 8 * 1024 * 1024
"""Size limit of each file."""
KEPT_OLDER = 3
"""Older files that are kept."""
LAST_LINES = 15
LONGEST_LINE_BYTES = 64 * 1024
"""Longer lines are split, so that a program that prints no line end cannot fill the memory."""


class KeptOutput(Thread):
    """Thread that appends a stream to a file until it ends, and keeps the last lines in memory."""

    def __init__(
        self, stream: IO[bytes], place: Path, *, kept_bytes: int = KEPT_BYTES, kept_older: int = KEPT_OLDER
    ) -> None:
        """Prepare the thread; `start` runs it."""
        super().__init__(daemon=True)
        self._stream = stream
        self._file = _Lines(place, kept_bytes=kept_bytes, kept_older=kept_older)
        self._last: deque[str] = deque(maxlen=LAST_LINES)

    def last_lines(self) -> list[str]:
        """The last lines of this program, without output of other programs in the same file."""
        return list(self._last)

    def run(self) -> None:
        """Read until the stream ends."""
        lost = 0
        with self._stream:
            for part in iter(lambda: self._stream.readline(LONGEST_LINE_BYTES), b""):
                line = part.decode(errors="surrogateescape")
                self._last.append(part.decode(errors="replace").rstrip("\n"))
                word = f"({lost} lines lost: there was no room)\n{line}" if lost else line
                try:
                    self._file.append(word)
                except OSError:  # most likely a full disk
                    lost += 1
                else:
                    lost = 0
        self._file.close()


def keep_output(stream: IO[bytes], place: Path) -> KeptOutput:
    """Append everything from `stream` to a file until it ends, in a thread."""
    kept = KeptOutput(stream, place)
    kept.start()
    return kept


class _Lines(RotatingFileHandler):
    """Rotating file handler for lines that are already formatted."""

    terminator = ""

    def __init__(self, place: Path, *, kept_bytes: int, kept_older: int) -> None:
        super().__init__(
            place,
            maxBytes=kept_bytes,
            backupCount=kept_older,
            encoding="utf-8",
            errors="surrogateescape",
            delay=True,
        )

    def append(self, line: str) -> None:
        """Write one line. Raises OSError if the disk is full; the file is then opened again for the next line."""
        self.emit(makeLogRecord({"msg": line}))

    def handleError(self, record: LogRecord) -> None:
        """Re-raise the error of a failed write. logging calls this inside its `except`."""
        with suppress(OSError):
            self.close()
        raise
