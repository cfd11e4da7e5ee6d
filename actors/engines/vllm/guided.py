"""Answers of given forms from a vLLM server: our guide says which tokens may come next, and the server draws one of them.

One request for each token that there is a choice about; a token that is the only one is not asked for. So the sets that
tokens were drawn from are exactly those that are recorded, and the log-probabilities are those of the distribution
renormalised over them. A regular expression on the server's side would take one request, but vLLM does not say (without a
GPU not at all) which tokens its own grammar left, and a step whose sets are unknown cannot be trained on.
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
    """One answer. `version`: the newest that is known to be served, for tokens that need not be asked for."""
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
