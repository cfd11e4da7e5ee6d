"""What is said to a vLLM server and what it answers (`/inference/v1/generate` of vLLM 0.32): plain data, checked.

Invariant "Adopted is not published": the server labels every token with the weights that it was sampled from
(`weight_versions`), and says `default` of weights that nobody gave it. A label of ours names the run's log and a version, so
that an answer from the weights of another run, be it of the same name in another home, from weights of unknown origin or
from an older version is never taken for one of ours.
"""

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from actors.engines.base import Generation
from core.errors import HindcastError
from core.sampling import Sampling

LARGEST_SEED = (1 << 63) - 1


class WrongVersion(HindcastError):
    """A server sampled from other weights than it is expected to have."""


class Unusable(HindcastError):
    """A server's answer cannot be read, or lacks what every answer needs."""


class _Logprob(msgspec.Struct, frozen=True):
    token_id: int
    logprob: float


class _Logprobs(msgspec.Struct, frozen=True):
    content: list[_Logprob] | None = None


class _Span(msgspec.Struct, frozen=True):
    """Output tokens `[start, end)` were sampled by weights of this label."""

    version: str
    start: int
    end: int


class _Choice(msgspec.Struct, frozen=True):
    token_ids: list[int] | None = None
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None
    weight_versions: list[_Span] | None = None


class _Answer(msgspec.Struct, frozen=True):
    choices: list[_Choice]


_DECODER = msgspec.json.Decoder(_Answer)


def label_of(run: str, version: int) -> str:
    """What a server's weights are called. `run`: its log's name (`events.beginning.log_name`), here and below."""
    return f"{run}:{version}"


def version_in(label: str, run: str) -> int | None:
    """The version that a label names; None: it is not one of this run's."""
    name, _, version = label.rpartition(":")
    return int(version) if name == run and version.isdecimal() else None


def request_body(
    prompt_ids: Sequence[int],
    sampling: Sampling,
    *,
    stops: Collection[int],
    salt: str,
    seed: int | None = None,
    max_tokens: int | None = None,
    allowed: Sequence[int] | None = None,
) -> dict[str, Any]:
    """A request. `stops`: the tokens that end an answer, and nothing else does. `salt`: prompts read under another salt
    are not taken from the cache. `seed` and `max_tokens` in place of those of `sampling`; `allowed`: the tokens that may be
    drawn.
    """
    parameters: dict[str, Any] = {
        "temperature": sampling.temperature,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "seed": (sampling.seed if seed is None else seed) & LARGEST_SEED,
        "max_tokens": max_tokens or sampling.max_tokens,
        "logprobs": 0,
        "ignore_eos": True,  # what ends an answer is what ends one in scoring and in process
        "stop_token_ids": list(stops),
        "detokenize": False,
    }
    if allowed is not None:
        parameters["allowed_token_ids"] = list(allowed)
    return {"token_ids": list(prompt_ids), "sampling_params": parameters, "cache_salt": salt}


def read_answer(content: bytes, *, run: str, stops: Collection[int]) -> Generation:
    """The answer in a response.

    Raises:
        WrongVersion: some token was sampled from weights that are not this run's.
        Unusable: it is no answer, or lacks ids, log-probabilities or versions.

    """
    try:
        choice = _DECODER.decode(content).choices[0]
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
        versions=_versions(choice.weight_versions or [], len(tokens), run),
        finish="stop" if tokens[-1] in stops else "length",
    )


def _versions(spans: Sequence[_Span], tokens: int, run: str) -> list[int]:
    found: list[int] = []
    for span in spans:
        version = version_in(span.version, run)
        if version is None:
            raise WrongVersion(
                f"it samples from weights labelled {span.version!r}, which are not run {run}'s"
            )
        if span.start != len(found):
            raise Unusable(f"versions of tokens {span.start} to {span.end} came where {len(found)} was due")
        found += [version] * (span.end - span.start)
    if len(found) != tokens:
        raise Unusable(
            f"{tokens} tokens came with the versions of {len(found)}: vLLM 0.32 or newer names all"
        )
    return found
