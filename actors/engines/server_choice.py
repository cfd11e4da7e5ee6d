"""Which server an engine with several asks: the same one for the same key, so that its cache of prompts serves an episode.

Rendezvous hashing: when a server goes, only what was asked of it moves, and comes back with it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import blake2b

_KEY: ContextVar[str] = ContextVar("routing_key", default="")


@contextmanager
def routed_by(key: str) -> Iterator[None]:
    """Calls of an engine inside belong together, such as those of one episode."""
    token = _KEY.set(key)
    try:
        yield
    finally:
        _KEY.reset(token)


def routing_key() -> str:
    """What the calls here belong to; empty: nothing."""
    return _KEY.get()


def preferred(key: str, servers: Sequence[str]) -> list[str]:
    """All servers, the one to ask first in front."""
    return sorted(servers, key=lambda server: blake2b(f"{key} {server}".encode()).digest())
