"""Requests to and answers from a vLLM server (`/inference/v1/generate` of vLLM 0.32): plain data, checked.

`actors.engines.vllm.weights` determines the version of an answer.

Constrained answers: our guide gives the allowed next tokens, and the server draws one of them. There is one request per
token with a choice; a forced token needs none. So the recorded sets are exactly those that tokens were drawn from, and
log-probabilities are of the distribution renormalized over them. A regular expression on the server would take one
request, but vLLM does not report which tokens its grammar allowed (without a GPU not at all), and a step with unknown
sets cannot be trained on.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

import msgspec
import numpy as np

from hindcast.actors.engines.base import Generation
from hindcast.actors.engines.guide import Guide
from hindcast.actors.engines.vllm.weights import ServedWeights, Span, Unusable
from hindcast.core.domain.sampling import Sampling
from hindcast.core.grammar.allowed_tokens import Allowed, pack_allowed
from hindcast.core.seeds import derive_seed
from hindcast.core.structs import json_decoder

LARGEST_SEED = (1 << 63) - 1


class _Logprob(msgspec.Struct, frozen=True):
    token_id: int
    logprob: float


class _Logprobs(msgspec.Struct, frozen=True):
    content: list[_Logprob] | None = None


class _Choice(msgspec.Struct, frozen=True):
    token_ids: list[int] | None = None
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None
    weight_versions: list[Span] | None = None


class _Answer(msgspec.Struct, frozen=True):
    choices: list[_Choice]
    model: str = ""
    """The model that answered: an adapter's name, or the model without adapters."""


_DECODER = json_decoder(_Answer)


def request_body(
    prompt_ids: Sequence[int],
    sampling: Sampling,
    *,
    stops: Collection[int],
    version_fields: Mapping[str, str],
    seed: int | None = None,
    max_tokens: int | None = None,
    allowed: Sequence[int] | None = None,
    seeded: bool = True,
) -> dict[str, Any]:
    """Build a request. `stops`: the only tokens that end an answer. `version_fields`: the requested version, by
    `ServedWeights.request_fields`. `seed` and `max_tokens` replace those of `sampling`. `allowed`: the tokens that may be drawn.
    `seeded`: whether the server draws by the seed (`vllm.request_seeds`).
    """
    parameters: dict[str, Any] = {
        "temperature": sampling.temperature,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "max_tokens": max_tokens or sampling.max_tokens,
        "logprobs": 0,
        "ignore_eos": True,  # answers end at the same tokens as in scoring and in process
        "stop_token_ids": list(stops),
        "detokenize": False,
    }
    if seeded:
        parameters["seed"] = (sampling.seed if seed is None else seed) & LARGEST_SEED
    if allowed is not None:
        parameters["allowed_token_ids"] = list(allowed)
    return {"token_ids": list(prompt_ids), "sampling_params": parameters, **version_fields}


def read_answer(
    content: bytes, *, weights: ServedWeights, requested: int, stops: Collection[int]
) -> Generation:
    """Parse the answer to a request for the version `requested`.

    Raises:
        WrongVersion: some token was sampled from weights of another run, or of another version than requested.
        Unusable: the answer is invalid, or lacks ids, log-probabilities or versions.
    """
    try:
        answer = _DECODER.decode(content)
        choice = answer.choices[0]
    except (msgspec.DecodeError, IndexError) as error:
        raise Unusable(f"what came is no answer: {error}") from None
    tokens = choice.token_ids or []
    logprobs = [] if choice.logprobs is None else choice.logprobs.content or []
    if not tokens or choice.finish_reason not in ("stop", "length"):
        raise Unusable(f"the answer was broken off after {len(tokens)} tokens ({choice.finish_reason})")
    if [entry.token_id for entry in logprobs] != tokens:
        raise Unusable(
            f"{len(tokens)} tokens came with {len(logprobs)} log-probabilities, or with those of others"
        )
    return Generation(
        token_ids=tokens,
        logprobs=[entry.logprob for entry in logprobs],
        versions=weights.versions(
            choice.weight_versions or [], len(tokens), model=answer.model, requested=requested
        ),
        finish="stop" if tokens[-1] in stops else "length",
    )


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
            generation = await ask(
                prompt_ids + tokens,
                sampling,
                seed=derive_seed(sampling.seed, "token", len(tokens)),
                max_tokens=1,
                allowed=ids,
            )
            token, logprob, drawn_from = (
                generation.token_ids[0],
                generation.logprobs[0],
                generation.versions[0],
            )
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
