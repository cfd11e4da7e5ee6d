"""Keeps what a program prints in a file, without ever being in its way: on a full disk the words are lost, not the program.

honcho ends, and everything with it, when its output cannot be written. So it writes into a pipe, and a thread of ours
takes the words from there. The file is bounded: a long one becomes `<name>.1`, that one `<name>.2`, and the oldest goes.
"""

from collections import deque
from contextlib import suppress
from logging import LogRecord, makeLogRecord
from logging.handlers import RotatingFileHandler
from pathlib import Path
from threading import Thread
from typing import IO

KEPT_BYTES = 8 * 1024 * 1024
"""Of each file."""
KEPT_OLDER = 3
"""Files beside the one being written."""
LAST_LINES = 15
LONGEST_LINE_BYTES = 64 * 1024
"""What is longer is taken in parts, so that a program that prints no line end cannot fill the memory."""


class KeptOutput(Thread):
    """Appends everything from `stream` to a file until it ends. Its last lines are known without reading the file."""

    def __init__(
        self, stream: IO[bytes], place: Path, *, kept_bytes: int = KEPT_BYTES, kept_older: int = KEPT_OLDER
    ) -> None:
        """`start` it."""
        super().__init__(daemon=True)
        self._stream = stream
        self._file = _Lines(place, kept_bytes=kept_bytes, kept_older=kept_older)
        self._last: deque[str] = deque(maxlen=LAST_LINES)

    def last_lines(self) -> list[str]:
        """The end of what this program has said; nothing that another one said into the same file before."""
        return list(self._last)

    def run(self) -> None:
        """Take words until there are no more."""
        lost = 0
        with self._stream:
            for part in iter(lambda: self._stream.readline(LONGEST_LINE_BYTES), b""):
                line = part.decode(errors="surrogateescape")
                self._last.append(part.decode(errors="replace").rstrip("\n"))
                word = f"({lost} lines lost: there was no room)\n{line}" if lost else line
                try:
                    self._file.append(word)
                except OSError:  # no room, most likely: nobody reads this more than it is worth
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
    """The library's rotation for lines that somebody else has formatted already."""

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
        """Raises OSError when there is no room; then the file is opened anew for the next one."""
        self.emit(makeLogRecord({"msg": line}))

    def handleError(self, record: LogRecord) -> None:
        """Called where an error is being handled."""
        with suppress(OSError):
            self.close()
        raise
