"""Requests to and answers from a vLLM server (`/inference/v1/generate` of vLLM 0.32): plain data, checked.

`actors.engines.vllm.weights` determines the version of an answer.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from hindcast.actors.engines.base import Generation
from hindcast.actors.engines.vllm.weights import ServedWeights, Span, Unusable
from hindcast.core.domain.sampling import Sampling

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


_DECODER = msgspec.json.Decoder(_Answer)


def request_body(
    prompt_ids: Sequence[int],
    sampling: Sampling,
    *,
    stops: Collection[int],
    named: Mapping[str, str],
    seed: int | None = None,
    max_tokens: int | None = None,
    allowed: Sequence[int] | None = None,
) -> dict[str, Any]:
    """Build a request. `stops`: the only tokens that end an answer. `named`: the requested version, by
    `ServedWeights.named`. `seed` and `max_tokens` replace those of `sampling`. `allowed`: the tokens that may be drawn.
    """
    parameters: dict[str, Any] = {
        "temperature": sampling.temperature,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "seed": (sampling.seed if seed is None else seed) & LARGEST_SEED,
        "max_tokens": max_tokens or sampling.max_tokens,
        "logprobs": 0,
        "ignore_eos": True,  # answers end at the same tokens as in scoring and in process
        "stop_token_ids": list(stops),
        "detokenize": False,
    }
    if allowed is not None:
        parameters["allowed_token_ids"] = list(allowed)
    return {"token_ids": list(prompt_ids), "sampling_params": parameters, **named}


def read_answer(content: bytes, *, weights: ServedWeights, asked: int, stops: Collection[int]) -> Generation:
    """Parse the answer to a request for the version `asked`.

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
    if [one.token_id for one in logprobs] != tokens:
        raise Unusable(
            f"{len(tokens)} tokens came with {len(logprobs)} log-probabilities, or with those of others"
        )
    return Generation(
        token_ids=tokens,
        logprobs=[one.logprob for one in logprobs],
        versions=weights.versions(choice.weight_versions or [], len(tokens), model=answer.model, asked=asked),
        finish="stop" if tokens[-1] in stops else "length",
    )
