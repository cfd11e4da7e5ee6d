"""What every policy engine offers: token ids in, token ids out, with the log-probabilities they were sampled at."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import msgspec

from hindcast.core.domain.sampling import Sampling
from hindcast.core.grammar.answer_constraints import Form

if TYPE_CHECKING:
    from hindcast.core.models.vision import ProcessedImage  # loads torch

Constraint = tuple[Form, ...] | bytes
"""Forms that an answer must have one of; or the sets that a recorded answer was drawn from, as `core.grammar.allowed_tokens` packs them."""


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """One answer, exactly as it was sampled."""

    token_ids: list[int]
    """The end token included when it was sampled."""
    logprobs: list[float]
    """Per token, of the distribution it was drawn from: temperature and constraint are applied. At temperature 0, of
    temperature 1."""
    versions: list[int]
    """Per token, the policy version it was drawn from."""
    finish: Literal["stop", "length"]
    """`length`: cut at `Sampling.max_tokens`, no end token."""
    allowed: bytes = b""
    """The set that each token was drawn from, as `core.grammar.allowed_tokens` packs them; empty: the whole vocabulary each time."""


class PolicyEngine(Protocol):
    """A policy that acts for any number of callers at once."""

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
        """Sample one answer. Depends on prompt, sampling, constraint and weights, not on who shares the forward pass.

        What the constraint does not allow has probability 0, and the rest is renormalised, before each token is drawn.
        Raises EngineFailed when no answer can come, ModelFileError when this policy cannot be constrained. Cancelling
        the call takes the request out of the batch.
        """
        ...

    async def adopt(self, version: int, weights: Path) -> None:
        """Sample from these weights from now on; returns once it is so. Raises ModelFileError, changing nothing."""
        ...

    async def close(self) -> None:
        """Stop; calls that still wait fail with EngineFailed."""
        ...


@runtime_checkable
class SeeingEngine(PolicyEngine, Protocol):
    """A policy that may read pictures beside text."""

    async def see(self, image: bytes) -> "ProcessedImage":
        """An image file as its prompts have it. Raises PictureUnreadable, and ModelFileError where this policy reads none."""
        ...

    async def generate_seeing(
        self,
        prompt_ids: Sequence[int],
        pictures: "Sequence[ProcessedImage]",
        sampling: Sampling,
        constraint: Constraint | None = None,
    ) -> Generation:
        """`generate` for a prompt in which these pictures stand, in this order."""
        ...
