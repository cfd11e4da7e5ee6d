"""The person at the screen: whether a window can be shown, and what they type into the terminal."""

import asyncio
import os
import sys
from collections.abc import Mapping

from hindcast.core.errors import HindcastError

DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")


class NoScreen(HindcastError):
    """There is no display to show a browser window on."""

    exit_code = 2


def require_screen(environment: Mapping[str, str] | None = None) -> None:
    """Assert that a window can be shown. Raises NoScreen."""
    found = os.environ if environment is None else environment
    if sys.platform.startswith("linux") and not any(found.get(name) for name in DISPLAYS):
        raise NoScreen(
            "there is no display to open a browser on: DISPLAY and WAYLAND_DISPLAY are not set. Run this where there is a "
            "screen, or with --headless and a --script with the steps"
        )


async def type_done() -> str | None:
    """Wait for `done`, with or without an answer; returns the answer. None at the end of the input: canceled."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str] = asyncio.Queue()
    loop.add_reader(sys.stdin.fileno(), lambda: lines.put_nowait(sys.stdin.readline()))
    try:
        while line := await lines.get():
            word, _, answer = line.strip().partition(" ")
            if word == "done":
                return answer.strip()
            sys.stderr.write("type `done`, or `done ANSWER`; Ctrl-C cancels\n")
        return None
    finally:
        loop.remove_reader(sys.stdin.fileno())
