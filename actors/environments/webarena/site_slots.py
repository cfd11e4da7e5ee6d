"""Places on a site: how many episodes may be on it at the same time, over all processes of a machine.

A place is a file that is locked as long as an episode holds it; the system frees it when its process ends, however.
"""

import asyncio
import fcntl
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from hindcast.core.ids import digest_hex

POLL_S = 0.1
"""Between two looks for a free place."""


def places_folder() -> Path:
    """Where this user's places are, the same for all runs."""
    return Path(tempfile.gettempdir()) / f"hindcast-webarena-{os.getuid()}"


class HeldSlots:
    """Places that an episode holds; `free` gives them back."""

    def __init__(self) -> None:
        self._files: list[int] = []

    def add(self, file: int) -> None:
        """Take a locked file into keeping."""
        self._files.append(file)

    def free(self) -> None:
        """Give all back; a second time does nothing."""
        while self._files:
            os.close(self._files.pop())


class SiteSlots:
    """`limit` places on each address; 0: as many as are wanted."""

    def __init__(self, limit: int, folder: Path) -> None:
        self._limit = limit
        self._folder = folder

    async def take(self, addresses: Iterable[str], held: HeldSlots) -> None:
        """Wait for one place on each address and add it to `held`. The caller bounds the wait, and frees `held`."""
        if not self._limit:
            return
        self._folder.mkdir(mode=0o700, exist_ok=True)
        for address in sorted(set(addresses)):  # in one order everywhere: nobody waits in a circle
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
