"""Bounds of time and memory for a library that works on untrusted files.

A chat template is a program: it may loop forever, or take all memory by a repeated string. Both are stopped here and become
a ModelFileError. Outside the main thread there is no alarm, and time is not bounded.
"""

import resource
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from hindcast.core.errors import ModelFileError


@contextmanager
def bounded_use(*, what: str, seconds: float, most_bytes: int | None = None) -> Iterator[None]:
    """Raise ModelFileError if the block takes longer than `seconds`, or more than `most_bytes` of additional memory."""

    def stop(_number: int, _frame: FrameType | None) -> NoReturn:
        raise ModelFileError(
            f"{what} took longer than {seconds:g} s and was stopped: a chat template may loop without end. Fetch it again."
        )

    alarmed = threading.current_thread() is threading.main_thread()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    now = _address_space()
    if (
        most_bytes is not None
        and now
        and (limits[0] == resource.RLIM_INFINITY or now + most_bytes < limits[0])
    ):
        resource.setrlimit(resource.RLIMIT_AS, (now + most_bytes, limits[1]))
    before = signal.signal(signal.SIGALRM, stop) if alarmed else None
    began = time.monotonic()
    outer_s = signal.setitimer(signal.ITIMER_REAL, seconds)[0] if alarmed else 0.0
    try:
        yield
    except MemoryError:
        raise ModelFileError(
            f"{what} takes more memory than it may and was stopped. Fetch it again."
        ) from None
    finally:
        if alarmed:
            signal.signal(signal.SIGALRM, before)
            # restore an outer alarm
            left_s = max(0.001, outer_s - (time.monotonic() - began)) if outer_s else 0.0
            signal.setitimer(signal.ITIMER_REAL, left_s)
        resource.setrlimit(resource.RLIMIT_AS, limits)


def _address_space() -> int:
    """Return the bytes of this process's address space; 0 if unknown."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return 0
    return pages * resource.getpagesize()
