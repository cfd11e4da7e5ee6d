"""What the disk itself does, as context: a block written and synced, again and again, with nothing above it."""

import os
import time
from pathlib import Path


def synced_writes_per_s(folder: Path, *, block_bytes: int, seconds: float = 1.0) -> float:
    """How often a second a block of this size can be appended to a file and `fdatasync`ed."""
    block = os.urandom(block_bytes)
    path = folder / "synced"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        began = time.perf_counter()
        writes = 0
        while (passed := time.perf_counter() - began) < seconds or writes == 0:
            os.write(handle, block)
            os.fdatasync(handle)
            writes += 1
        return writes / passed
    finally:
        os.close(handle)
        path.unlink()
