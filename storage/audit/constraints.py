"""Checks the allowed tokens of a constrained step against the sampled tokens."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from hindcast.core.domain.arrays import unpack_floats, unpack_ids
from hindcast.core.errors import CorruptEvent
from hindcast.core.grammar.allowed_tokens import unpack_allowed


def wrong_constraint(step: Mapping[str, Any]) -> str | None:
    """What is wrong with a step's allowed tokens; None if nothing is, or if every token was allowed."""
    if not step.get("allowed"):
        return None
    try:
        allowed = unpack_allowed(step["allowed"])
    except CorruptEvent as error:
        return f"its allowed tokens do not decode: {error.__cause__}"
    tokens, logprobs = unpack_ids(step["action_ids"]), unpack_floats(step["logprobs"])
    if len(allowed) != len(tokens):
        return f"{len(allowed)} sets of allowed tokens for {len(tokens)} tokens"
    vocabulary = allowed.shape[1]
    for index, (token, logprob, allowed_here) in enumerate(zip(tokens, logprobs, allowed, strict=True)):
        if not 0 <= token < vocabulary or not allowed_here[token]:
            return f"token {token} at place {index} is none of those it was drawn from"
        if logprob != 0 and np.count_nonzero(allowed_here) == 1:
            return (
                f"token {token} at place {index} was the only one allowed, with log-probability {logprob:g}"
            )
    return None
