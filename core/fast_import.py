"""Loading modules without looking for garbage meanwhile.

A module's functions and classes are thousands of containers, and each few hundred of them set off a collection that finds
nothing: of the 4.6 s of CPU time that torch and transformers take to load, that is one second, and of a small process's 0.7 s
a tenth.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """For imports: within it nothing is collected, and no later collection goes through what there is by then."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.freeze()  # else the next collection goes through all of it, and finds as little
            gc.enable()
