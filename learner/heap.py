"""Return freed memory to the system.

Every batch has tensors of other shapes than the one before, and glibc keeps the freed memory of each. Measured: 40
forward and backward passes of random shapes leave a process with 1 529 MiB, and with 386 if this is called after each.
Other C libraries return memory by themselves; there this does nothing.
"""

import ctypes
from collections.abc import Callable
from functools import cache


@cache
def _trimmer() -> Callable[[int], int] | None:
    trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim


def give_back_freed() -> None:
    """Return the allocator's free pages to the system. Blocking, some milliseconds; changes no number."""
    trim = _trimmer()
    if trim is not None:
        trim(0)
