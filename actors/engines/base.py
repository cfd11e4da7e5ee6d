"""Interface of policy engines: token ids in, token ids out, with the log-probabilities of their sampling distribution.

A choice among several servers gives the same key the same server, so that its prompt cache serves an episode. It is
rendezvous hashing: when a server fails, only its keys move, and they return with it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import msgspec

from hindcast.core.domain.sampling import Sampling
from hindcast.core.grammar.answer_constraints import Form

if TYPE_CHECKING:
    from hindcast.core.models.vision import ProcessedImage


Constraint = tuple[Form, ...] | bytes
"""Allowed answer forms; or the token sets of a recorded answer, packed by `core.grammar.allowed_tokens`."""


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """One answer, exactly as it was sampled."""

    token_ids: list[int]
    """Sampled tokens, including the end token if it was sampled."""
    logprobs: list[float]
    """Log-probability of each token under the sampling distribution, with temperature and constraint applied. At temperature
    0, under temperature 1.
    """
    versions: list[int]
    """Policy version of each token."""
    finish: Literal["stop", "length"]
    """`length`: cut at `Sampling.max_tokens`, without an end token."""
    allowed: bytes = b""
    """Token set that each token was drawn from, packed by `core.grammar.allowed_tokens`; empty: the whole vocabulary."""


class PolicyEngine(Protocol):
    """A policy that answers any number of concurrent callers."""

    @property
    def version(self) -> int:
        """The version that new answers are sampled from."""
        ...

    @property
    def tokenizer(self) -> Any:
        """The policy's fast tokenizer."""
        ...

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, constraint: Constraint | None = None
    ) -> Generation:
        """Sample one answer. It depends on prompt, sampling, constraint and weights, not on other requests in the batch.

        Tokens outside the constraint have probability 0, and the rest is renormalized, before each token is drawn. Raises
        EngineFailed when no answer can be given, ModelFileError when this policy cannot be constrained. Cancelling the call
        removes the request from the batch.
        """
        ...

    async def adopt(self, version: int, weights: Path) -> None:
        """Switch to these weights; returns once they are in use. Raises ModelFileError, changing nothing."""
        ...

    async def close(self) -> None:
        """Stop the engine; waiting calls fail with EngineFailed."""
        ...


@runtime_checkable
class SeeingEngine(PolicyEngine, Protocol):
    """A policy that may read pictures as well as text."""

    async def see(self, image: bytes) -> "ProcessedImage":
        """Process an image file for prompts. Raises PictureUnreadable, or ModelFileError where this policy reads no pictures."""
        ...

    async def generate_seeing(
        self,
        prompt_ids: Sequence[int],
        pictures: "Sequence[ProcessedImage]",
        sampling: Sampling,
        constraint: Constraint | None = None,
    ) -> Generation:
        """`generate` for a prompt that contains these pictures, in this order."""
        ...


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
