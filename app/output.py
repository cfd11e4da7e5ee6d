"""Keeps what a program prints in a file, without ever being in its way: on a full disk the words are lost, not the program.

honcho ends, and everything with it, when its output cannot be written. So it writes into a pipe, and a thread of ours
takes the words from there.
"""

from pathlib import Path
from threading import Thread
from typing import IO


def keep_output(stream: IO[bytes], place: Path) -> Thread:
    """Append everything from `stream` to a file until it ends, in a thread."""
    thread = Thread(target=_keep, args=(stream, place), daemon=True)
    thread.start()
    return thread


def _keep(stream: IO[bytes], place: Path) -> None:
    lost = 0
    with stream:
        for line in stream:
            try:
                with place.open("ab") as file:
                    if lost:
                        file.write(b"(%d lines lost: there was no room)\n" % lost)
                    file.write(line)
            except OSError:  # no room, most likely: nobody reads this more than it is worth
                lost += 1
            else:
                lost = 0
