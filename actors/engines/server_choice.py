"""Chooses among several servers: the same server for the same key, so that its prompt cache serves an episode.

Rendezvous hashing: when a server fails, only its keys move, and they return with it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import blake2b

_KEY: ContextVar[str] = ContextVar("routing_key", default="")


@contextmanager
def routed_by(key: str) -> Iterator[None]:
    """Route the engine calls inside by this key, such as an episode."""
    token = _KEY.set(key)
    try:
        yield
    finally:
        _KEY.reset(token)


def routing_key() -> str:
    """The routing key of the current calls; empty: none."""
    return _KEY.get()


def preferred(key: str, servers: Sequence[str]) -> list[str]:
    """All servers in order of preference for the key."""
    return sorted(servers, key=lambda server: blake2b(f"{key} {server}".encode()).digest())
