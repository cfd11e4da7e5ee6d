"""Giving a log more room, at once and for later starts: how a paused or full run is freed while it goes on."""

import re

from app.configuration import Layer, merge, read_file, to_toml
from app.runs import SETTINGS_FILE, RunHandle
from core.errors import SettingsError

UNITS = {"": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4}
SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([KMGT]iB)?")


def parse_size(text: str) -> int:
    """Bytes in `16GiB`, `500 MiB` or `1000000`.

    Raises:
        SettingsError: it is none of these.

    """
    found = SIZE.fullmatch(text.strip())
    if found is None:
        raise SettingsError(f"{text!r} is no size. Give bytes, or a number with KiB, MiB, GiB or TiB: 16GiB")
    return int(float(found[1]) * UNITS[found[2] or ""])


async def resize_log(handle: RunHandle, max_bytes: int) -> RunHandle:
    """Tell the broker the new limit, then write it into the run's settings; a running system goes on by itself.

    Raises:
        SettingsError: less than the log holds already.
        ApiError: the broker refuses so much; nothing was changed.

    """
    async with handle.connect_log() as log:
        fill = await log.fill()
    if max_bytes <= fill.used_bytes:
        raise SettingsError(
            f"the log of run {handle.name} holds {fill.used_bytes} bytes already: log.max_bytes = {max_bytes} would stop "
            "it. Give more than that."
        )
    place = handle.folder / SETTINGS_FILE
    layer, _ = read_file(place)
    change = Layer(source="hindcast log resize", values={"log.max_bytes": max_bytes})
    resolved = merge([layer, change], recipe=handle.recipe)
    resized = RunHandle(handle.home, handle.name, resolved)
    async with resized.connect_log("admin"):  # opening it as its administrator makes the limit hold
        # only now: a limit that the broker refuses would keep the run from ever starting again
        temporary = place.with_name(f".{SETTINGS_FILE}")
        temporary.write_text(to_toml(resolved))
        temporary.rename(place)
    return resized
