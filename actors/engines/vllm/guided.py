"""Constrained answers from a vLLM server: our guide gives the allowed next tokens, and the server draws one of them.

One request per token with a choice; a forced token needs none. So the recorded sets are exactly those that tokens were
drawn from, and log-probabilities are of the distribution renormalized over them. A regular expression on the server
would take one request, but vLLM does not report which tokens its grammar allowed (without a GPU not at all), and a step
with unknown sets cannot be trained on.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

import numpy as np

from hindcast.actors.engines.base import Generation
from hindcast.actors.engines.guide import Guide
from hindcast.core.domain.sampling import Sampling
from hindcast.core.grammar.allowed_tokens import Allowed, pack_allowed
from hindcast.core.seeds import derive_seed


class GuidedRequest(Protocol):
    """One request to a server."""

    async def __call__(
        self,
        prompt_ids: list[int],
        sampling: Sampling,
        *,
        seed: int | None = None,
        max_tokens: int | None = None,
        allowed: Sequence[int] | None = None,
    ) -> Generation:
        """See `request_body`."""
        ...


async def sample_guided(
    ask: GuidedRequest,
    prompt_ids: list[int],
    sampling: Sampling,
    guide: Guide,
    *,
    stops: Collection[int],
    version: Callable[[], int],
) -> Generation:
    """Sample one constrained answer. `version`: the newest known served version, for forced tokens."""
    tokens: list[int] = []
    logprobs: list[float] = []
    versions: list[int] = []
    sets: list[Allowed] = []
    while len(tokens) < sampling.max_tokens and (not tokens or tokens[-1] not in stops):
        allowed = guide.allowed()
        ids = np.flatnonzero(allowed).tolist()
        if len(ids) == 1:
            token, logprob, drawn_from = ids[0], 0.0, versions[-1] if versions else version()
        else:
            drawn = await ask(
                prompt_ids + tokens,
                sampling,
                seed=derive_seed(sampling.seed, "token", len(tokens)),
                max_tokens=1,
                allowed=ids,
            )
            token, logprob, drawn_from = drawn.token_ids[0], drawn.logprobs[0], drawn.versions[0]
        guide.take(token)
        sets.append(allowed)
        tokens.append(token)
        logprobs.append(logprob)
        versions.append(drawn_from)
    return Generation(
        token_ids=tokens,
        logprobs=logprobs,
        versions=versions,
        finish="stop" if tokens[-1] in stops else "length",
        allowed=pack_allowed(sets),
    )
