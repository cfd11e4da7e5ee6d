"""Slots on a site: how many episodes may use it at the same time, over all processes of a machine.

A slot is a file that an episode locks; the operating system unlocks it when its process ends for any reason.
"""

import asyncio
import fcntl
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from hindcast.core.ids import digest_hex

POLL_S = 0.1
"""Pause between two attempts to find a free slot."""


def places_folder() -> Path:
    """Folder of this user's slots, the same for all runs."""
    return Path(tempfile.gettempdir()) / f"hindcast-webarena-{os.getuid()}"


class HeldSlots:
    """Slots that an episode holds; `free` returns them."""

    def __init__(self) -> None:
        self._files: list[int] = []

    def add(self, file: int) -> None:
        """Keep a locked file."""
        self._files.append(file)

    def free(self) -> None:
        """Return all slots; a second call does nothing."""
        while self._files:
            os.close(self._files.pop())


class SiteSlots:
    """`limit` slots on each address; 0: unlimited."""

    def __init__(self, limit: int, folder: Path) -> None:
        self._limit = limit
        self._folder = folder

    async def take(self, addresses: Iterable[str], held: HeldSlots) -> None:
        """Wait for one slot on each address and add it to `held`. The caller bounds the wait, and frees `held`."""
        if not self._limit:
            return
        self._folder.mkdir(mode=0o700, exist_ok=True)
        for address in sorted(set(addresses)):  # one order everywhere prevents deadlocks
            held.add(await self._wait(digest_hex(address.encode())[:16]))

    async def _wait(self, name: str) -> int:
        while True:
            for number in range(self._limit):
                file = self._try(self._folder / f"{name}.{number}")
                if file is not None:
                    return file
            await asyncio.sleep(POLL_S)

    def _try(self, path: Path) -> int | None:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return None
        return file
