"""Raise a log's size limit, at once and for later starts; it frees a paused or full run while it is running."""

import re

from hindcast.app.runs.runs import SETTINGS_FILE, RunHandle, write_settings
from hindcast.app.settings.configuration import Layer, merge_recorded, read_file
from hindcast.core.errors import SettingsError
from hindcast.core.text.plain_values import GREATEST_INTEGER

UNITS = {"": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4}
LONGEST = 32
"""Characters of a wrong size that a message shows."""
SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([KMGT]iB)?")


def parse_size(text: str) -> int:
    """Bytes in `16GiB`, `500 MiB` or `1000000`.

    Raises:
        SettingsError: it is no size.

    """
    found = SIZE.fullmatch(text.strip())
    if found is None:
        raise SettingsError(f"{text!r} is no size. Give bytes, or a number with KiB, MiB, GiB or TiB: 16GiB")
    # whole bytes are read as an integer: a float has 53 bits
    number = float(found[1]) if "." in found[1] else int(found[1][:LONGEST])
    size = int(number * UNITS[found[2] or ""])
    if not 0 < size <= GREATEST_INTEGER or len(found[1]) > LONGEST:
        raise SettingsError(
            f"{text[:LONGEST]!r} is no size that a log can have: 1 byte to {GREATEST_INTEGER}"
        )
    return size


async def resize_log(handle: RunHandle, max_bytes: int) -> RunHandle:
    """Set the broker's limit, then write it into the run's settings; a running system continues by itself.

    Raises:
        SettingsError: the log holds more already.
        ApiError: the broker rejects the limit; nothing was changed.

    """
    async with handle.connect_log() as log:
        fill = await log.fill()
    if max_bytes <= fill.used_bytes:
        raise SettingsError(
            f"the log of run {handle.name} holds {fill.used_bytes} bytes already: log.max_bytes = {max_bytes} would stop "
            "it. Choose a larger limit."
        )
    layer, _ = read_file(handle.folder / SETTINGS_FILE)
    change = Layer(source="hindcast log resize", values={"log.max_bytes": max_bytes})
    resolved = merge_recorded([layer, change], recipe=handle.recipe)
    resized = RunHandle(handle.home, handle.name, resolved, fork=handle.fork)
    async with resized.connect_log("admin"):  # opening it as its administrator makes the limit hold
        # only now: a limit that the broker refuses would keep the run from ever starting again
        write_settings(handle.folder, resolved)
    return resized
